"""The result of a run: its figures, its seconds, and what it was made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.hardware import made_with
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.greedy import greedy_figures
from gem_core.training.sessions import read_sessions, total_seconds

RESULT_FORMAT = 2
"""Increase it when the meaning of a field of ``result.json`` changes."""


def training_result(
    run: RunDir,
    recipe: Recipe,
    source: str,
    before: dict[str, float] | None,
    after: dict[str, float] | None,
) -> dict[str, Any]:
    """Return what ``result.json`` keeps of a run that was trained from the model ``source``."""
    info = run.info
    sessions = read_sessions(run)
    sessions[-1].outcome = "finished"
    seconds = total_seconds(sessions)
    rows = run.metrics()
    for phase in ("rollout", "update", "sync"):
        spent = [row[f"time/{phase}"] for row in rows if f"time/{phase}" in row]
        if spent:
            seconds[phase] = sum(spent)
    return {
        "format": RESULT_FORMAT,
        "name": recipe.name,
        "trainer": info["trainer"],
        "estimator": recipe.algorithm.estimator,
        "seed": recipe.seed,
        "n": recipe.eval.episodes,
        "before": before,
        "after": after,
        "greedy": greedy_figures(run),
        "eval_engines": {
            row["when"]: row.get("engine") for row in run.evals() if row["when"] != "during"
        },
        "steps": recipe.train.steps,
        "episodes": recipe.train.steps * recipe.batch.episodes,
        "model": recipe.model.path,
        "start": Path(source).name,
        # Of all sessions; rollout, update and sync without the steps that a later one repeated.
        "seconds": {phase: round(value, 2) for phase, value in seconds.items()},
        "sessions": [session.summary() for session in sessions],
        **made_with(info),
    }
