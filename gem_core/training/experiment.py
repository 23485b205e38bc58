"""Run one experiment: evaluate, train, evaluate, write the result.

`run_experiment` is the same for every trainer, so that the figures before and after training come
from one evaluator on the same episodes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gem_core.errors import RecipeError
from gem_core.evaluation.outcomes import TaskOutcome, add_outcome
from gem_core.policies.gpu import wait_for_memory
from gem_core.policies.models.files import origin_of
from gem_core.policies.models.weights import require_complete
from gem_core.results.failures import count_failures
from gem_core.results.log_lines import evaluation_in_words, training_in_words
from gem_core.runs import trainers
from gem_core.runs.directory.files import refuse_link
from gem_core.runs.directory.lock import exclusive
from gem_core.runs.directory.run_dir import IfExists, RunDir
from gem_core.runs.environments.data import belonging_to
from gem_core.runs.launch import launch
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.resolved import ResolvedRun, resolve_run
from gem_core.runs.task_overlap import overlap_in_words, task_overlap
from gem_core.runs.tracking import require_trackers, tracked
from gem_core.training.allocator import keep_freed_memory
from gem_core.training.device import require_device
from gem_core.training.eval_engine import ENGINE_LOG, require_engine
from gem_core.training.greedy import evaluate_greedily
from gem_core.training.result import training_result
from gem_core.training.saved_model import complete_model
from gem_core.training.sessions import SessionLog, recorded
from gem_core.training.stopping import EXIT_CODE, RunStopped, stop_on_sigterm
from gem_core.training.threads import limit_openmp_spin
from gem_core.training.tiny import model_path

_TORCHRUN = "TORCHELASTIC_RUN_ID"
"""Environment variable of the processes that torchrun starts."""


def run_experiment(
    recipe: Recipe,
    trainer: str,
    path: str | Path,
    if_exists: IfExists = "error",
    *,
    log: Callable[[str], None] = print,
) -> RunDir:
    """Train ``recipe`` with ``trainer`` and measure it before and after on the evaluation episodes.

    Args:
        recipe: the experiment; ``eval.episodes = 0`` omits the two evaluations.
        trainer: name of the trainer.
        path: the run directory.
        if_exists: what to do with a directory that already holds a run; ``resume`` continues it (or
            starts one where there is none), and returns a finished run unchanged.
        log: receives lines of progress and the final table.

    Returns:
        The finished run.

    Raises:
        DataError: the data of an environment are not available, or, with ``resume``, they are not
            those that the run began with.
        GemError: an evaluation failed.
        MissingDependencyError: the trainer, the engine of the evaluations or a tracker of the
            recipe cannot run here.
        RecipeError: an environment does not accept the parameters of the recipe, there is no GPU
            for it, or the model cannot be read or lacks weights.
        RunError: the directory cannot be used (another process trains there, for example), or
            training did not produce a model.
        RunStopped: SIGTERM came while it trained; it can be resumed.
    """
    spec = trainers.get_trainer(trainer)
    trainers.require(spec, recipe.hardware.device)
    require_trackers(recipe.track.to)
    # What the trainer refuses leaves no directory.
    native = trainers.resolve(spec.translate)(recipe)
    trained = if_exists == "resume" and RunDir(path).trained
    if recipe.hardware.nodes > 1 and spec.check_nodes and not trained:
        trainers.resolve(spec.check_nodes)(recipe)
    if not trained:
        require_device(recipe, trainer)
    require_engine(recipe, trainer)
    with exclusive(path):
        return _run(recipe, trainer, native, path, if_exists, log)


@contextmanager
def training(
    path: str | Path, recipe: Recipe, trainer: str, *, resume: bool = False
) -> Iterator[RunDir]:
    """Open a run directory for a script that trains into it, as the scripts in recipes/ do.

    Inside the block the run is locked, its data are recorded, its seconds are measured, its
    trackers receive what it records, and SIGTERM saves and ends it: the script ends with
    `EXIT_CODE` then. After the block the model, if there is one, is completed (`complete_model`).
    In the processes that torchrun starts it only yields the directory; the process that started
    them does the rest.

    Args:
        path: the run directory.
        recipe: the experiment; `gem_core.runs.resolved.read_resolved` says inside the block what
            the run is. A recipe that the trainer refuses leaves no directory.
        trainer: name of the trainer.
        resume: whether to continue the run in the directory; without it there must be none.

    Raises:
        DataError: the data of an environment are not available, or not those of the run.
        MissingDependencyError: a tracker of the recipe cannot run here.
        RecipeError: the trainer refuses the recipe, there is no GPU for it, or the model cannot be
            read or lacks weights.
        RunError: the directory cannot be used, or the model in it lacks weights or has another
            shape than the one that training started from.
        SystemExit: training was stopped.
    """
    if _TORCHRUN in os.environ:
        try:
            with belonging_to(RunDir(path)):
                yield RunDir(path)
        except RunStopped:
            raise SystemExit(0) from None  # the process that started this one says so
        return
    require_trackers(recipe.track.to)
    native = trainers.resolve(trainers.get_trainer(trainer).translate)(recipe)
    require_device(recipe, trainer)
    require_complete(recipe)
    try:
        with exclusive(path):
            run, _ = _open(recipe, trainer, native, path, "resume" if resume else "error")
            with (
                recorded(run) as session,
                belonging_to(run),
                tracked(run, print),
                session.phase("train"),
                stop_on_sigterm(run),
            ):
                yield run
            if run.model.exists():
                complete_model(recipe, trainer, model_path(recipe), run.model)
    except RunStopped as stopped:
        print(stopped, file=sys.stderr)
        raise SystemExit(EXIT_CODE) from None


def _open(
    recipe: Recipe, trainer: str, native: Any, path: str | Path, if_exists: IfExists
) -> tuple[RunDir, ResolvedRun]:
    """Check data and directory; an error leaves both as they were. Record what the run is.

    Raises:
        RecipeError: the run would need weights that are in no checkpoint.
    """
    if if_exists == "resume" and RunDir(path).exists and recipe.sampling.staleness:
        raise RecipeError(
            "sampling.staleness: such a run cannot be resumed, the weights of earlier steps are in "
            "no checkpoint. Start it again with --overwrite."
        )
    resumed = RunDir(path) if if_exists == "resume" and RunDir(path).exists else None
    resolved = resolve_run(recipe, trainer, resumed, native=native)
    run = RunDir.create(path, recipe, trainer, if_exists)
    run.record(resolved.record())
    return run, resolved


def _run(
    recipe: Recipe,
    trainer: str,
    native: Any,
    path: str | Path,
    if_exists: IfExists,
    log: Callable[[str], None],
) -> RunDir:
    """Make the run, unless it is finished."""
    from gem_core.results.data import data_lines

    resume = if_exists == "resume" and RunDir(path).exists
    if resume and RunDir(path).finished:
        run = RunDir.create(path, recipe, trainer, if_exists)
        log(f"{run.path} is finished; nothing to do.")
        return run
    require_complete(recipe)
    run, resolved = _open(recipe, trainer, native, path, if_exists)
    for line in data_lines(resolved.environments):
        log(line)
    with recorded(run) as session, belonging_to(run), tracked(run, log):
        return _train(resolved, run, resume, session, log)


def _train(
    resolved: ResolvedRun,
    run: RunDir,
    resume: bool,
    session: SessionLog,
    log: Callable[[str], None],
) -> RunDir:
    """Evaluate, train, evaluate and write the result."""
    from gem_core.results import before_after
    from gem_core.runs.tracking.progress import progress

    recipe, trainer = resolved.recipe, resolved.trainer.name
    if recipe.hardware.device == "cpu":
        keep_freed_memory()  # both also apply to the processes that a trainer starts
        limit_openmp_spin()
    with session.phase("model"):
        source = model_path(recipe, resolved.envs)
        resolved = resolved.with_model(source)
    origin = origin_of(source)
    if origin is not None:
        run.record({"model_origin": origin})
    with session.phase("eval_before"):
        before = _evaluate(run, resolved, source, "before", 0, log)
        evaluate_greedily(run, resolved, source, "before", log)
    overlap = task_overlap(recipe, resolved.envs) if recipe.eval.episodes else None
    if recipe.eval.episodes:
        log(overlap_in_words(overlap))
    if run.trained:
        log(f"{run.path} is trained.")
    else:
        log(training_in_words(recipe, trainer, run.path))
        with session.phase("train"), progress(run, recipe.train.steps, log), stop_on_sigterm(run):
            launch(resolved, run, resume=resume)
        complete_model(recipe, trainer, source, run.model)
        run.mark_trained()
        if recipe.hardware.device == "gpu" and recipe.eval.episodes:
            wait_for_memory()
    with session.phase("eval_after"):
        after = _evaluate(run, resolved, run.model, "after", recipe.train.steps, log)
        evaluate_greedily(run, resolved, run.model, "after", log)
    result = training_result(run, recipe, source, before, after)
    run.finish({**result, "environments": run.info["environments"], "eval_tasks": overlap})
    log(before_after([run]))
    return run


def _evaluate(
    run: RunDir,
    resolved: ResolvedRun,
    model: str | Path,
    when: str,
    step: int,
    log: Callable[[str], None],
) -> dict[str, float] | None:
    """Evaluate and record it, unless the run has that evaluation already."""
    for row in run.evals():
        if row["when"] == when:
            return {k: v for k, v in row.items() if k not in ("when", "step", "engine")}
    recipe = resolved.recipe
    if recipe.eval.episodes == 0:
        return None
    from gem_core.evaluation.measure import measure

    metrics, engine, outcomes = measure(
        recipe, model, refuse_link(run.path / ENGINE_LOG), resolved.envs, resolved.trainer.name
    )
    add_outcome(run, TaskOutcome(when, False, engine, outcomes))
    run.log_eval(step, when, metrics, engine)
    log(evaluation_in_words(when, metrics, engine))
    failed = ", ".join(f"{name} {count}" for name, count in count_failures(metrics).items())
    if failed:
        log(
            f"Warning: evaluation episodes that failed count as not solved ({failed}). The score "
            "is too low by as much; repair the environment, raise limits.turn_deadline_s, or "
            "evaluate on a machine with less other load."
        )
    return metrics
