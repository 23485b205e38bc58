"""Which keys a trainer carries out: refused by name where it cannot, or where two keys compete.

Every adapter's ``config`` module says what becomes of each recipe key (`TRANSLATED`, ``APPLIED``,
``REFUSED``) and which native keys the recipe decides (``NATIVE_OWNED``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gem_core.errors import RecipeError
from gem_core.training.recipe import Recipe, flatten, get_key, recipe_keys


def core_keys() -> frozenset[str]:
    """Dotted keys that the core carries out for every trainer: prompts, limits, tasks."""
    owned = ("context.", "limits.", "model.tiny.")
    single = {"name", "env", "trainer", "sources", "model.path", "model.revision"}
    single |= {"eval.episodes", "eval.temperature", "train.start"}
    return frozenset(k for k in recipe_keys() if k in single or k.startswith(owned))


def refuse_keys(recipe: Recipe, trainer: str, reasons: Mapping[str, str]) -> None:
    """Raise RecipeError if a key that ``trainer`` cannot honour differs from its default.

    Args:
        recipe: what was asked for.
        trainer: for the message.
        reasons: dotted key -> why it cannot be honoured and what to do instead.
    """
    plain = Recipe(name="", env=[])
    for key, why in reasons.items():
        if get_key(recipe, key) != get_key(plain, key):
            value = get_key(recipe, key)
            raise RecipeError(f"{trainer} cannot honour {key} = {value!r}: {why}")


def refuse_values(recipe: Recipe, trainer: str, checks: Iterable[tuple[str, object, str]]) -> None:
    """Raise RecipeError at the first check that holds: values that ``trainer`` cannot honour.

    Args:
        recipe: what was asked for.
        trainer: for the message.
        checks: dotted keys (several with spaces between), whether their values cannot be honoured,
            and why, or what to do instead.
    """
    for keys, broken, why in checks:
        if broken:
            values = " and ".join(f"{key} = {get_key(recipe, key)!r}" for key in keys.split())
            raise RecipeError(f"{trainer} cannot honour {values}: {why}.")


def refuse_native(recipe: Recipe, trainer: str, owned: Mapping[str, str]) -> None:
    """Raise RecipeError for a native key in ``[trainer.<trainer>]`` that something else decides.

    Args:
        recipe: what was asked for.
        trainer: the name of its table.
        owned: native key, dotted -> what decides it: the recipe's key, or a reason.
    """
    native = {key.lstrip("+~") for key in flatten(recipe.trainer.get(trainer, {}))}
    for key in sorted(native & owned.keys()):
        raise RecipeError(f"trainer.{trainer}.{key}: {owned[key]}.")
