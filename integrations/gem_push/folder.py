"""The files that are uploaded, taken from a run folder that may come from somebody else.

Only files whose kind is known are taken, links are refused, and what is written elsewhere in the
run (commands, places on the machine, the trainer's own configuration) is not uploaded.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gem_core.errors import MissingDependencyError, RecipeError, RunError
from gem_core.results.plots import learning_curve
from gem_core.runs.directory import episode_store
from gem_core.runs.directory import files as run_files
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.load import stored_recipe, without_idle
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.redaction import is_secret_name, redact
from gem_push.card import model_card
from gem_push.evidence import Measurements
from gem_push.recipe_file import recipe_text

MODEL_FILES = frozenset({".json", ".safetensors", ".txt", ".model", ".jinja"})
"""Suffixes of a model's files; others, such as pickles and Python code, can run code."""
CURVE = "learning-curve.png"
RECIPE = "recipe.json"
RECIPE_TOML = "recipe.toml"
"""The same recipe as `RECIPE`, as ``gem-core train`` reads it; keys without effect are left out."""


def write_folder(
    run: RunDir, folder: Path, repo: str, evidence: Measurements, episodes: bool = True
) -> list[str]:
    """Write everything that is uploaded of a run.

    Args:
        run: a finished run.
        folder: an empty one.
        repo: ``OWNER/NAME``, for the card.
        evidence: what else was measured.
        episodes: whether the sampled episodes are taken.

    Returns:
        What was left out, one line each, with the reason.

    Raises:
        RunError: the run did not finish, has no model, or has links.
    """
    result = run.result
    left_out = _copy_model(run, folder)
    _write_json(folder / RECIPE, public_recipe(run.recipe))
    changed = _write_toml(folder / RECIPE_TOML, without_idle(run.recipe), left_out)
    _write_lines(folder / "metrics.jsonl", run.metrics())
    _write_lines(folder / "evals.jsonl", run.evals())
    curve = _draw(run, folder / CURVE, left_out)
    if episodes:
        _copy_episodes(run, folder, left_out)
    card = model_card(run, result, repo, evidence, curve, changed)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return left_out


def _write_toml(path: Path, recipe: Recipe, left_out: list[str]) -> list[str] | None:
    """Write the recipe that can be run; return the keys that have other values in it.

    Where TOML cannot say the recipe (a parameter of an environment may be ``None``), nothing is
    written, and ``None`` returned.
    """
    public = public_recipe(recipe)
    try:
        text = recipe_text(public)
        same = stored_recipe(msgspec.toml.decode(text)) == stored_recipe(public)
    except (RunError, RecipeError) as error:
        left_out.append(f"{path.name} ({error})")
        return None
    if not same:
        left_out.append(f"{path.name} (a parameter of the recipe is None, and TOML has no None)")
        return None
    path.write_text(text, encoding="utf-8")
    return changed_keys(recipe.to_dict(), public)


def public_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe without secrets; of a place on this machine the last name is kept."""
    data: dict[str, Any] = redact(recipe.to_dict(), is_secret_name)
    return {key: _without_places(value) for key, value in data.items()}


def changed_keys(recipe: Mapping[str, Any], public: Mapping[str, Any]) -> list[str]:
    """Return the dotted keys of a recipe whose values are others in what is published of it.

    >>> changed_keys({"env": [{"id": "a"}], "seed": 1}, {"env": [{"id": "b"}], "seed": 1})
    ['env.0.id']
    """
    was, now = _with_positions(recipe), _with_positions(public)
    return [key for key, value in was.items() if now[key] != value]


def _with_positions(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted keys and values; the tables of a list have their positions as keys."""
    return flatten({key: _items(value) for key, value in tables.items()})


def _items(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _items(inner) for key, inner in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if any(isinstance(item, Mapping) for item in value):
        return {str(number): _items(item) for number, item in enumerate(value)}
    return list(value)


def _without_places(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_places(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_places(inner) for inner in value]
    if isinstance(value, str) and value.startswith(("/", "~")) and "\n" not in value:
        return Path(value).name
    return value


def _copy_model(run: RunDir, folder: Path) -> list[str]:
    if run.model.is_symlink():
        raise RunError(f"{run.model} is a link, and links in a run are not followed.")
    if not run.model.is_dir():
        raise RunError(f"{run.path} has no model/: push a run that finished training.")
    left_out = []
    for file in sorted(run.model.iterdir()):
        if file.is_symlink():
            raise RunError(f"{file} is a link, and links in a run are not followed.")
        if file.suffix not in MODEL_FILES:
            left_out.append(f"model/{file.name} (not a kind of file that only has data)")
        else:
            _copy(file, folder / file.name)
    if not (folder / "config.json").exists():
        raise RunError(f"{run.model} has no config.json: it is no model of transformers.")
    return left_out


def _copy_episodes(run: RunDir, folder: Path, left_out: list[str]) -> None:
    source = episode_store.episodes_file(run.path)
    try:
        _copy(source, folder / source.name)
    except FileNotFoundError:
        left_out.append("episodes (the run kept none)")


def _copy(source: Path, target: Path) -> None:
    """Copy a regular file; no link is followed."""
    with run_files.open_file(source) as old, target.open("xb") as new:
        shutil.copyfileobj(old, new)


def _draw(run: RunDir, path: Path, left_out: list[str]) -> str | None:
    try:
        return learning_curve([run], path).name
    except MissingDependencyError as error:
        left_out.append(f"{path.name} ({error})")
    except RunError as error:
        left_out.append(f"{path.name} ({error})")
    return None


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
