"""What of a run is kept for good: small enough to commit, enough for every table and plot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem_core.training.runs import RunDir

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
    "time/step",
    "time/rollout",
    "time/update",
    "time/sync",
)
"""What is kept of a step's metrics."""
_DIGITS = 5


def record(run: RunDir, target: str | Path) -> RunDir:
    """Copy a finished run's figures, thinned, into ``target``; readable as a `RunDir`.

    Kept: recipe, result, evaluations, `METRICS` of every step with five significant digits,
    versions and hardware. Left out: episodes, checkpoints, the model, the command with its paths,
    and where a model that came from another run lay.

    Raises:
        RunError: the run is not finished.
    """
    kept, result = RunDir(target), run.result
    kept.path.mkdir(parents=True, exist_ok=True)
    info = {key: value for key, value in run.info.items() if key != "command"}
    recipe = run.recipe.to_dict()
    if Path(recipe["model"]["path"]).is_absolute():  # a run's model: <run>/model
        recipe["model"]["path"] = "/".join(Path(recipe["model"]["path"]).parts[-2:])
        result = {**result, "model": recipe["model"]["path"]}
    for name, data in (
        ("result.json", result),
        ("run.json", info),
        ("recipe.json", recipe),
    ):
        text = json.dumps(data, indent=1, sort_keys=True) + "\n"
        (kept.path / name).write_text(text, encoding="utf-8")
    _write_lines(kept.path / "evals.jsonl", run.evals())
    steps = [{"step": r["step"], **{k: r[k] for k in METRICS if k in r}} for r in run.metrics()]
    _write_lines(kept.path / "metrics.jsonl", steps)
    return kept


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = [json.dumps(_rounded(row)) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


def _rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
        for key, value in row.items()
    }
