"""One experiment from beginning to end: evaluate, train, evaluate, write the result.

Every trainer goes through `run_experiment`, so the figures before and after training come
from one evaluator on the same held-out episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gem_core.errors import RunError
from gem_core.registration import spec
from gem_core.tiny import model_path
from gem_core.training import trainers
from gem_core.training.allocator import keep_freed_memory
from gem_core.training.model_files import copy_source_files
from gem_core.training.recipe import Recipe
from gem_core.training.runs import IfExists, RunDir
from gem_core.training.threads import limit_openmp_spin

RESULT_FORMAT = 1
"""Raise it when the meaning of a field of ``result.json`` changes."""


def run_experiment(
    recipe: Recipe,
    trainer: str,
    path: str | Path,
    if_exists: IfExists = "error",
    *,
    say: Callable[[str], None] = print,
) -> RunDir:
    """Train ``recipe`` with ``trainer`` and measure it before and after on held-out episodes.

    Args:
        recipe: the experiment; ``eval.episodes = 0`` leaves the two evaluations out.
        trainer: name of the trainer.
        path: the run directory.
        if_exists: what to do with a directory that already holds a run; ``resume`` goes on with
            it (and starts one where there is none), and returns a finished run as it is.
        say: receives lines of progress and the final table.

    Returns:
        The finished run.

    Raises:
        MissingDependencyError: the trainer cannot run here.
        RunError: the directory cannot be used, or training left no model.
    """
    from gem_core.report import before_after
    from gem_core.report.progress import progress

    trainers.require(trainers.get_trainer(trainer))
    resume = if_exists == "resume" and RunDir(path).exists
    run = RunDir.create(path, recipe, trainer, if_exists)
    if run.finished:
        say(f"{run.path} is finished; nothing to do.")
        return run
    if recipe.hardware.device == "cpu":
        keep_freed_memory()  # these two also for the processes that a trainer starts
        limit_openmp_spin()
    clock = _Clock()
    with clock("model"):
        source = model_path(recipe)
    with clock("eval_before"):
        before = _evaluate(run, recipe, source, "before", 0, say)
    say(f"Training {recipe.name} with {trainer} for {recipe.train.steps} steps into {run.path}")
    with clock("train"), progress(run, recipe.train.steps, say):
        trainers.launch(trainer, recipe, run, resume=resume)
    if not (run.model / "config.json").exists():
        raise RunError(f"{trainer} left no model in {run.model}; see its output above.")
    copy_source_files(source, recipe.model.revision, run.model)
    with clock("eval_after"):
        after = _evaluate(run, recipe, run.model, "after", recipe.train.steps, say)
    run.finish(_result(run, recipe, before, after, clock.seconds, resume))
    say(before_after([run]))
    return run


def _evaluate(
    run: RunDir,
    recipe: Recipe,
    model: str | Path,
    when: str,
    step: int,
    say: Callable[[str], None],
) -> dict[str, float] | None:
    """Evaluate and log it, unless this run has that evaluation already."""
    for row in run.evals():
        if row["when"] == when:
            return {k: v for k, v in row.items() if k not in ("when", "step")}
    if recipe.eval.episodes == 0:
        return None
    from gem_core.evaluation.local import evaluate

    found = evaluate(recipe, model)
    run.log_eval(step, when, found)
    low, high = found["success/low"], found["success/high"]
    say(
        f"{when.capitalize()}: success {found['success/mean']:.3f} [{low:.3f}, {high:.3f}] on "
        f"{found['episodes']:.0f} held-out episodes"
    )
    return found


def _result(
    run: RunDir,
    recipe: Recipe,
    before: dict[str, float] | None,
    after: dict[str, float] | None,
    seconds: dict[str, float],
    resumed: bool,
) -> dict[str, Any]:
    info, rows = run.info, run.metrics()
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
        "steps": recipe.train.steps,
        "episodes": recipe.train.steps * recipe.batch.episodes,
        "model": recipe.model.path,
        "start": Path(model_path(recipe)).name,
        "environments": {
            env.id: spec(env.id).replace(**env.kwargs).fingerprint() for env in recipe.env
        },
        # Of a resumed run, rollout, update and sync cover all sessions, the others only the last.
        "resumed": resumed,
        "seconds": {phase: round(value, 2) for phase, value in seconds.items()},
        "versions": info["versions"],
        "hardware": {key: info[key] for key in ("platform", "processor", "cores", "gpus")},
        "python": info["python"],
        "commit": info["commit"],
    }


class _Clock:
    """Wall seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[phase] = time.perf_counter() - began
