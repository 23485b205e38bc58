"""RL2's own configuration, as hydra composes it from RL2's files, and the keys that it has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import RL2
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from gem_core.errors import RecipeError, did_you_mean
from gem_core.training.recipe import flatten

_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
"""A value that is another key's."""


def compose_native(overrides: Sequence[str]) -> Any:
    """The configuration of ``RL2.trainer.ppo`` with ``overrides`` in hydra's grammar."""
    folder = Path(RL2.__path__[0], "trainer", "config")
    with initialize_config_dir(str(folder), version_base=None):
        return compose("ppo", list(overrides))


@cache
def native_keys() -> dict[str, Any]:
    """Every key of the installed RL2's configuration, dotted -> its default, references as text."""
    return flatten(OmegaConf.to_container(compose_native([]), resolve=False))


def followers(owned: Mapping[str, str], configuration: Mapping[str, Any]) -> dict[str, str]:
    """Keys of ``configuration`` that take their value from ``owned`` ones.

    RL2's critic, for one, has ``scheduler: ${actor.scheduler}``.

    Args:
        owned: key -> what decides it.
        configuration: key -> value; ``${key}`` is the value of another key, which may follow a
            third one.

    Returns:
        Key -> what decides the key that it follows.
    """
    decided = {}
    for key in configuration:
        source = _owned_source(key, owned, configuration)
        if key not in owned and source is not None:
            decided[key] = owned[source]
    return decided


def _owned_source(
    key: str, owned: Mapping[str, str], configuration: Mapping[str, Any]
) -> str | None:
    """The first owned key along the references from ``key``, None where none is."""
    source = key
    while source not in owned:
        reference = _REFERENCE.fullmatch(str(configuration.get(source)))
        if reference is None:
            return None
        source = reference[1]
    return source


def refuse_unknown(table: Mapping[str, Any]) -> None:
    """Raise RecipeError for a key of ``[trainer.rl2]`` that RL2's configuration does not have.

    A key that begins with hydra's ``+`` is meant to be new and passes.
    """
    known = native_keys()
    for key in flatten(table):
        name = key.lstrip("~")
        if not key.startswith("+") and name not in known:
            raise RecipeError(
                f"trainer.rl2.{key}: RL2's configuration has no such key."
                f"{did_you_mean(name, known)} To add a key of your own, write '+{name}'."
            )
