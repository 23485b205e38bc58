"""Refuse, by name, the keys that a trainer cannot honour or that something else already decides.

The ``config`` module of every adapter states what becomes of each recipe key (``TRANSLATED``,
``APPLIED``, ``REFUSED``) and which native keys the recipe decides (``NATIVE_OWNED``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gem_core.errors import RecipeError
from gem_core.training.recipe import Recipe, flatten, get_key, recipe_keys


def core_keys() -> frozenset[str]:
    """Return the dotted keys that the core applies for every trainer: prompts, limits, tasks."""
    owned = ("context.", "limits.", "model.tiny.")
    single = {"name", "env", "trainer", "sources", "model.path", "model.revision"}
    single |= {"eval.episodes", "eval.temperature", "train.start"}
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


def refuse_native(recipe: Recipe, trainer: str, owned: Mapping[str, str]) -> None:
    """Refuse native keys in ``[trainer.<trainer>]`` that something else decides.

    Args:
        recipe: the recipe of the run.
        trainer: name of the trainer, and of its table.
        owned: dotted native key -> what decides it: the recipe's key, or a reason.

    Raises:
        RecipeError: the table has such a key.
    """
    native = {key.lstrip("+~") for key in flatten(recipe.trainer.get(trainer, {}))}
    for key in sorted(native & owned.keys()):
        raise RecipeError(f"trainer.{trainer}.{key}: {owned[key]}.")
