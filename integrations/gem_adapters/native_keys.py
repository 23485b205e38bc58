"""Refuse, by name, the keys that a trainer cannot honour or that something else already decides.

The ``config`` module of every adapter has the recipe keys that are ``TRANSLATED``, ``APPLIED`` and
``REFUSED``, and the native keys that the recipe decides (``NATIVE_OWNED``), of its `KeyTable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gem_core.errors import RecipeError
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import Recipe, get_key, recipe_keys


def core_keys() -> frozenset[str]:
    """Return the dotted keys that the core applies for every trainer: prompts, tasks, workers."""
    owned = ("context.", "limits.", "model.tiny.", "model.warm_start.", "track.", "workers.")
    single = {"name", "env", "trainer", "sources", "model.path", "model.revision"}
    single |= {"eval.env", "eval.episodes", "eval.temperature", "eval.engine", "eval.greedy"}
    single |= {"eval.top_p", "train.start"}
    return frozenset(k for k in recipe_keys() if k in single or k.startswith(owned))


def refuse_keys(recipe: Recipe, trainer: str, reasons: Mapping[str, str]) -> None:
    """Refuse every key that ``trainer`` cannot honour and that differs from its default.

    Args:
        recipe: the recipe of the run.
        trainer: name of the trainer, for the message.
        reasons: dotted key -> why it cannot be honoured and what to do instead.

    Raises:
        RecipeError: the recipe sets such a key.
    """
    defaults = Recipe(name="", env=[])
    for key, why in reasons.items():
        value = get_key(recipe, key)
        if value != get_key(defaults, key):
            raise RecipeError(f"{trainer} cannot honour {key} = {value!r}: {why}")


def refuse_values(recipe: Recipe, trainer: str, checks: Iterable[tuple[str, object, str]]) -> None:
    """Refuse values of keys that ``trainer`` cannot honour.

    Args:
        recipe: the recipe of the run.
        trainer: name of the trainer, for the message.
        checks: dotted keys (several are separated by spaces), whether their values cannot be
            honoured, and why, or what to do instead.

    Raises:
        RecipeError: the first check that holds.
    """
    for keys, broken, why in checks:
        if broken:
            values = " and ".join(f"{key} = {get_key(recipe, key)!r}" for key in keys.split())
            raise RecipeError(f"{trainer} cannot honour {values}: {why}.")


def check_staleness(recipe: Recipe) -> tuple[str, object, str]:
    """Return the check for `refuse_values` that an engine keeps old weights."""
    hardware = recipe.hardware
    return (
        "sampling.staleness hardware.device hardware.engine",
        recipe.sampling.staleness
        and (hardware.device == "gpu" or hardware.engine not in ("default", "hf")),
        "only gem-core's engine keeps old weights; use device = 'cpu' and engine = 'default'",
    )


def native_table(recipe: Recipe, trainer: str) -> dict[str, Any]:
    """Return ``[trainer.<trainer>]`` by dotted key; keys are as they were written."""
    return flatten(recipe.trainer.get(trainer, {}))


def bare(key: str) -> str:
    """Return a native key as owned keys are written.

    It has no dashes of a command line and no prefix of Hydra's (``+`` adds a key, ``++`` sets or
    adds it, ``~`` removes it), and underscores where a command line also takes dashes.

    >>> bare("++actor.optim.lr"), bare("--train.batch-size")
    ('actor.optim.lr', 'train.batch_size')
    """
    parts = [part.strip().lstrip("+~-") for part in key.split(".")]
    return ".".join(parts).replace("-", "_")


def parents(key: str) -> list[str]:
    """Return the tables that a dotted key lies in, the nearest first.

    >>> parents("data.custom_cls.path")
    ['data.custom_cls', 'data']
    """
    parts = key.split(".")
    return [".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]


def refuse_native(recipe: Recipe, trainer: str, owned: Mapping[str, str]) -> None:
    """Refuse native keys in ``[trainer.<trainer>]`` that something else decides.

    Args:
        recipe: the recipe of the run.
        trainer: name of the trainer, and of its table.
        owned: dotted native key -> what decides it: the recipe's key, or a reason.

    Raises:
        RecipeError: the table has such a key in any spelling (see `bare`), a key that lies in it,
            or one that holds it.
    """
    reasons = {bare(key): reason for key, reason in owned.items()}
    for given in sorted(native_table(recipe, trainer)):
        reason = _reason(bare(given), reasons)
        if reason is not None:
            raise RecipeError(f"trainer.{trainer}.{given.lstrip('+~-')}: {reason}.")


def _reason(name: str, owned: Mapping[str, str]) -> str | None:
    """Return what decides the native key ``name``; ``None`` where it is free."""
    for key in (name, *parents(name)):
        if key in owned:
            return owned[key]
    for key, reason in owned.items():
        if name in parents(key):
            return f"it holds {key} ({reason}); write a table of its other keys"
    return None
