"""Make a recipe: from files with overrides, from another recipe, or from stored plain types.

`load_recipe` merges, in this order: the defaults of the tables, the baseline (environment,
template, the paper's hyper-parameters with their sources), a profile (``tiny``, ``paper``), the
baseline's own ``[profiles.<name>]`` table, and ``key=value`` overrides. Unknown keys, wrong types
and impossible values are errors that name the key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gem_core.errors import RecipeError, did_you_mean
from gem_core.runs.recipe.checks import refuse_secrets, validate
from gem_core.runs.recipe.errors import explain
from gem_core.runs.recipe.files import merge_overrides, overridden, parse_override, read_tables
from gem_core.runs.recipe.key_needs import idle_keys, refuse_idle
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import trainer_names


def load_recipe(
    baseline: str | Path,
    profile: str | Path | None = None,
    overrides: Sequence[str] = (),
) -> Recipe:
    """Read a recipe.

    Args:
        baseline: a file (TOML, YAML), or the name of a shipped baseline.
        profile: a file (TOML, YAML), or the name of a shipped profile.
        overrides: ``dotted.key=value`` strings; the value is TOML (a bare word is a string).

    Raises:
        RecipeError: there is no such file, or a key is unknown, has a wrong type, an impossible
            value or no effect.
        TrustError: it names code that no installed plugin defines, and the variable
            ``GEM_CORE_TRUST`` is not 1 (``--trust`` of the commands sets it).
    """
    tables = read_tables(baseline, profile, overrides)
    refuse_secrets(tables)
    if overrides:
        before = read_tables(baseline, profile, ())
        tables = drop_idle(tables, overridden(overrides), before)
    return _with_known_trainers(recipe_from_dict(tables))


def override(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """Return ``recipe`` with ``dotted.key=value`` overrides.

    Raises:
        RecipeError: a key is unknown, has a wrong type or an impossible value, or an override has
            no effect.
    """
    for text in overrides:
        refuse_secrets(parse_override(text))
    data = merge_overrides(recipe.to_dict(), overrides)
    return _with_known_trainers(recipe_from_dict(drop_idle(data, overridden(overrides))))


def recipe_from_dict(data: Mapping[str, Any]) -> Recipe:
    """Build and validate a recipe from plain types.

    Raises:
        RecipeError: a key is unknown, has a wrong type, an impossible value or no effect.
    """
    recipe = stored_recipe(data)
    refuse_idle(recipe)
    return recipe


def stored_recipe(data: Mapping[str, Any]) -> Recipe:
    """Build and validate a recipe that was written by a program, as that of a run.

    It may have keys without effect: runs from before they were refused do.

    Raises:
        RecipeError: a key is unknown, has a wrong type or an impossible value.
    """
    try:
        recipe = msgspec.convert(data, Recipe)
    except msgspec.ValidationError as error:
        raise RecipeError(explain(str(error), data)) from None
    validate(recipe)
    return recipe


def without_idle(recipe: Recipe) -> Recipe:
    """Return a recipe that does the same, in which every key that is set has an effect."""
    return stored_recipe(drop_idle(recipe.to_dict()))


def drop_idle(
    tables: Mapping[str, Any],
    kept: Collection[str] = (),
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the tables of a recipe without keys that have no effect.

    Args:
        tables: a recipe as plain types, valid but for keys without effect.
        kept: dotted keys that stay, as do the keys in them: what a user set just now.
        before: the tables before the user's overrides. A key that had no effect in them stays, so
            that it is refused.

    Raises:
        RecipeError: the tables, or those before, are no valid recipe.
    """
    result = msgspec.to_builtins(tables)
    idle = idle_keys(stored_recipe(tables))
    if idle and before is not None:
        already = {key for key, _, _ in idle_keys(stored_recipe(before))}
        idle = [one for one in idle if one.key not in already]
    for key, _, _ in idle:
        if not any(key == name or key.startswith(f"{name}.") for name in kept):
            _delete(result, key.split("."))
    return dict(result)


def _with_known_trainers(recipe: Recipe) -> Recipe:
    """Return ``recipe`` if every table ``[trainer.<name>]`` is that of an installed trainer.

    A stored recipe is read without this check: its trainer may be installed elsewhere only.
    """
    known = trainer_names()
    for name in recipe.trainer:
        if name not in known:
            hint = did_you_mean(name, known)
            raise RecipeError(
                f"trainer.{name}: no trainer has this name.{hint} Known: {', '.join(known)}."
            )
    return recipe


def _delete(tables: Any, parts: list[str]) -> None:
    """Delete a key; a number is the position in a list."""
    for part in parts[:-1]:
        tables = tables[int(part)] if isinstance(tables, list) else tables[part]
    del tables[parts[-1]]
