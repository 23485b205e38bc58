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

from gem_core.errors import MissingDependencyError, RunError
from gem_core.results.plots import learning_curve
from gem_core.runs.directory import episode_store
from gem_core.runs.directory import files as run_files
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.redaction import is_secret_name, redact
from gem_push.card import model_card
from gem_push.evidence import Measurements

MODEL_FILES = frozenset({".json", ".safetensors", ".txt", ".model", ".jinja"})
"""Suffixes of a model's files; others, such as pickles and Python code, can run code."""
CURVE = "learning-curve.png"
RECIPE = "recipe.json"


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
    _write_json(folder / RECIPE, public_recipe(run))
    _write_lines(folder / "metrics.jsonl", run.metrics())
    _write_lines(folder / "evals.jsonl", run.evals())
    curve = _draw(run, folder / CURVE, left_out)
    if episodes:
        _copy_episodes(run, folder, left_out)
    card = model_card(run, result, repo, evidence, curve)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return left_out


def public_recipe(run: RunDir) -> dict[str, Any]:
    """Return the recipe without secrets; of a place on this machine the last name is kept."""
    data: dict[str, Any] = redact(run.recipe.to_dict(), is_secret_name)
    return {key: _without_places(value) for key, value in data.items()}


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
