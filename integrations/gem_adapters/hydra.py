"""Overrides in Hydra's grammar, and the keys of a configuration, for trainers that use Hydra.

Only `compose_native` needs Hydra itself; it imports it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_adapters.native_keys import bare, native_table, parents
from gem_core.errors import RecipeError, did_you_mean
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import Recipe

_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?\s*(\.?[\w.]+)\s*(?:,[^{}]*)?\}")
"""A value that is another key's: ``${key}`` or ``${oc.select:key,default}``; ``.key`` is beside."""


def override(key: str, value: Any) -> str:
    """Return one override ``key=value``; text is quoted so that Hydra reads it back unchanged.

    A key that begins with ``~`` deletes that key and takes no value.

    >>> override("actor.lr", 1e-6), override("name", "it's"), override("~actor.min_lr", None)
    ('actor.lr=1e-06', "name='it\\\\'s'", '~actor.min_lr')
    """
    if key.startswith("~"):
        return key
    if isinstance(value, str):
        # In Hydra, backslashes have a meaning only before a quote, where they must be doubled.
        value = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value)
        return f"{key}='{value}'"
    return f"{key}={json.dumps(value)}"


def compose_native(folder: Path, name: str, overrides: Sequence[str]) -> Any:
    """Compose a trainer's own configuration.

    Args:
        folder: where its configuration files are.
        name: the file to begin with, without ``.yaml``.
        overrides: in Hydra's grammar.
    """
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(folder), version_base=None):
        return compose(name, list(overrides))


def leaves(configuration: Any) -> dict[str, Any]:
    """Return every key of a composed configuration, dotted -> its value, references as text."""
    from omegaconf import OmegaConf

    return flatten(OmegaConf.to_container(configuration, resolve=False))


def followers(owned: Mapping[str, str], configuration: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys of ``configuration`` that take their value from ``owned`` ones.

    RL2's critic, for one, has ``scheduler: ${actor.scheduler}``.

    Args:
        owned: key -> what decides it.
        configuration: key -> value, see `leaves`; a reference may lead to a further one.

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
    """Return the first owned key along the references from ``key``, None where none is."""
    source = key
    while source not in owned:
        reference = _REFERENCE.fullmatch(str(configuration.get(source)))
        if reference is None:
            return None
        beside = source.rpartition(".")[0] if reference[1].startswith(".") else ""
        source = beside + reference[1]
    return source


def refuse_unknown(recipe: Recipe, trainer: str, known: Collection[str]) -> None:
    """Refuse keys of ``[trainer.<trainer>]`` that the trainer's configuration does not have.

    A key that begins with Hydra's ``+`` is meant to be new and passes, as do Hydra's own.

    Args:
        recipe: the recipe of the run.
        trainer: name of the trainer, and of its table.
        known: dotted keys of its configuration.

    Raises:
        RecipeError: there is no such key; the message has the nearest ones. Or the key chooses a
            group of configuration files, which would bring the recipe's keys with it.
    """
    tables = {table for key in known for table in parents(key)}
    for key in native_table(recipe, trainer):
        name = bare(key)
        if "@" in key or "/" in key:
            raise RecipeError(
                f"trainer.{trainer}.{key}: a group of configuration files may hold keys that the "
                "recipe decides. Set the keys themselves."
            )
        if key.startswith("+") or name.startswith("hydra."):
            continue
        if name not in known and not (key.startswith("~") and name in tables):
            raise RecipeError(
                f"trainer.{trainer}.{key}: {trainer}'s configuration has no such key."
                f"{did_you_mean(name, known)} To add a key of your own, write '+{name}'."
            )
