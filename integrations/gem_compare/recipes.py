"""Comparison of the stored recipe of a cell's run with the recipe of the requested experiment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gem_compare.grid import Cell
from gem_compare.results import CellResult
from gem_core.errors import RecipeError, RunError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.load import without_idle
from gem_core.runs.recipe.recipe import Recipe

_FREE = ("seed", "trainer")
"""Keys, or first parts of keys, in which the cells of one experiment may differ."""


def differing_keys(stored: Recipe, asked: Recipe) -> list[str]:
    """Return the dotted keys in which two recipes differ, each with both values.

    >>> from gem_core.runs.recipe.load import load_recipe
    >>> one = load_recipe("guess-the-number-easy", "tiny")
    >>> differing_keys(one, load_recipe("guess-the-number-easy", "tiny", ["algorithm.gamma=0.1"]))
    ['algorithm.gamma = 0.9, not 0.1']
    """
    old = _values(stored)
    new = _values(asked)
    keys = sorted(old.keys() | new.keys())
    return [f"{k} = {old.get(k)}, not {new.get(k)}" for k in keys if old.get(k) != new.get(k)]


def why_stale(folder: Path, asked: Recipe) -> str | None:
    """Return why the run in ``folder`` is not one of ``asked``; ``None`` if it is.

    Keys that were added to the schema after the run count with their defaults, keys without effect
    not at all.
    """
    try:
        differences = differing_keys(RunDir(folder).recipe, asked)
    except (RecipeError, RunError) as error:
        return f"its recipe cannot be read: {error}"
    return "; ".join(differences) or None


def mark_stale(
    results: Iterable[CellResult], cells: Sequence[Cell], profile: str | None, extra: Sequence[str]
) -> list[CellResult]:
    """Return the results of ``cells``, those of another recipe without their figures.

    Args:
        results: the results in the directory of a comparison.
        cells: the requested cells.
        profile: recipe profile of every cell.
        extra: recipe overrides of every cell.
    """
    asked = {cell.name: cell for cell in cells}
    kept = []
    for result in results:
        cell = asked.get(result.name)
        if cell is None:
            continue
        reason = why_stale(result.path, cell.recipe(profile, extra)) if result.result else None
        kept.append(result.without_figures(reason) if reason else result)
    return kept


def find_mixed_experiments(results: Iterable[CellResult]) -> list[str]:
    """Return where finished cells of one baseline and algorithm have different recipes.

    Returns:
        A line per key and experiment, with the values and the cells that have them.
    """
    experiments: dict[tuple[str, str], list[CellResult]] = {}
    for result in results:
        if result.result is not None:
            experiments.setdefault((result.baseline, result.algorithm), []).append(result)
    return [line for members in experiments.values() for line in _find_mixed(members)]


def _find_mixed(members: Sequence[CellResult]) -> list[str]:
    recipes = {member.name: _values(member.run.recipe) for member in members}
    keys = sorted({key for values in recipes.values() for key in values})
    lines = []
    for key in keys:
        if key.split(".")[0] in _FREE:
            continue
        having: dict[str, list[str]] = {}
        for name, values in recipes.items():
            having.setdefault(values.get(key, "-"), []).append(name)
        if len(having) > 1:
            parts = [f"{value}: {', '.join(names)}" for value, names in sorted(having.items())]
            lines.append(f"{members[0].baseline}/{members[0].algorithm} {key}: {'; '.join(parts)}")
    return lines


def _values(recipe: Recipe) -> dict[str, str]:
    flat: dict[str, Any] = flatten(without_idle(recipe).to_dict())
    return {key: json.dumps(value, sort_keys=True) for key, value in flat.items()}
