"""verl's own configuration, as hydra composes it, and what ``[trainer.verl]`` may change in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from gem_core.adapters.native_keys import refuse_native
from gem_core.errors import MissingDependencyError, RecipeError, did_you_mean
from gem_core.training.recipe import Recipe, flatten
from gem_verl import TRAINER

_PREFIXES = "+~"
"""What hydra reads before a key: ``+`` adds it, ``++`` sets or adds it, ``~`` removes it."""


def bare(key: str) -> str:
    """Return a key without hydra's prefix."""
    return key.lstrip(_PREFIXES)


def compose_native(overrides: Sequence[str]) -> Any:
    """Compose the configuration of ``verl.trainer.main_ppo``, without importing verl.

    Args:
        overrides: in hydra's grammar.

    Raises:
        MissingDependencyError: verl is not installed.
    """
    spec = find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(f"verl is not installed: {TRAINER.install}.")
    folder = Path(spec.submodule_search_locations[0], "trainer", "config")
    with initialize_config_dir(str(folder), version_base=None):
        return compose("ppo_trainer", list(overrides))


@cache
def native_keys() -> frozenset[str]:
    """Return every dotted key of verl's configuration, its tables included."""
    leaves = flatten(OmegaConf.to_container(compose_native([]), resolve=False))
    return frozenset(part for leaf in leaves for part in [leaf, *parents(leaf)])


def parents(key: str) -> list[str]:
    """Return the tables that a dotted key lies in, the nearest first.

    >>> parents("data.custom_cls.path")
    ['data.custom_cls', 'data']
    """
    parts = key.split(".")
    return [".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]


def native_table(recipe: Recipe) -> dict[str, Any]:
    """Return ``[trainer.verl]`` by dotted key."""
    return flatten(recipe.trainer.get("verl", {}))


def refuse_owned(recipe: Recipe, owned: Mapping[str, str]) -> None:
    """Refuse native keys of ``[trainer.verl]`` that something else decides.

    Args:
        recipe: the experiment.
        owned: dotted native key -> what decides it.

    Raises:
        RecipeError: a key is in ``owned``, lies in such a key, or holds one.
    """
    reasons = {}
    for name in {bare(key) for key in native_table(recipe)}:
        for key, reason in owned.items():
            if name == key or key in parents(name):
                reasons[name] = reason
            elif name in parents(key):
                reasons[name] = f"it holds {key}: {reason}"
    refuse_native(recipe, "verl", reasons)


def refuse_unknown(recipe: Recipe) -> None:
    """Refuse keys of ``[trainer.verl]`` that verl's configuration does not have.

    A key that begins with hydra's ``+`` is meant to be new and passes, as do hydra's own.

    Raises:
        RecipeError: there is no such key; the message has the nearest ones.
    """
    for key in native_table(recipe):
        name = bare(key)
        if key.startswith("+") or name.startswith("hydra."):
            continue
        if name not in native_keys():
            raise RecipeError(
                f"trainer.verl.{key}: verl's configuration has no such key."
                f"{did_you_mean(name, native_keys())} To add a key of your own, write '+{name}'."
            )
