"""Copy the part of a run that is small enough to commit and sufficient for tables and plots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gem_core.evaluation.outcomes import FILE as OUTCOMES
from gem_core.evaluation.outcomes import read_outcomes
from gem_core.runs.directory.files import write_object
from gem_core.runs.directory.run_dir import RunDir

METRICS = (
    "success/mean",
    "reward/mean",
    "turns/mean",
    "turns/invalid",
    "tokens/action",
    "loss/policy",
    "grad_norm",
    "entropy",
    "advantage/std",
    "tool/calls",
    "tool/used",
    "tool/failed",
    "time/step",
    "time/rollout",
    "time/update",
    "time/sync",
)
"""The metrics of a step that are kept."""
_DIGITS = 5


def record(run: RunDir, target: str | Path) -> RunDir:
    """Copy the figures of a finished run to ``target``, which can be read as a `RunDir`.

    Kept: recipe, result, evaluations, their outcomes, `METRICS` of every step with five significant
    digits, versions and hardware. Omitted: episodes, checkpoints, the model, the command with its
    paths, and the absolute path of a model of another run.

    Raises:
        RunError: the run is not finished.
    """
    kept = RunDir(target)
    result = run.result
    kept.path.mkdir(parents=True, exist_ok=True)
    info = {key: value for key, value in run.info.items() if key != "command"}
    files = {"result.json": result, "run.json": info, "recipe.json": run.recipe.to_dict()}
    model = Path(run.recipe.model.path)
    for name, data in files.items():
        text = json.dumps(data)
        if model.is_absolute():  # a run's model: <run>/model; also among the trainer's arguments
            text = text.replace(json.dumps(str(model))[1:-1], "/".join(model.parts[-2:]))
        write_object(kept.path / name, json.loads(text))
    _write_lines(kept.path / "evals.jsonl", run.evals())
    outcomes = read_outcomes(run).values()
    if outcomes:
        _write_lines(kept.path / OUTCOMES, [msgspec.to_builtins(line) for line in outcomes])
    names = ("step", *METRICS)
    steps = [{name: row[name] for name in names if name in row} for row in run.metrics()]
    _write_lines(kept.path / "metrics.jsonl", steps)
    return kept


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = [json.dumps(_round(row)) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


def _round(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
        for key, value in row.items()
    }
