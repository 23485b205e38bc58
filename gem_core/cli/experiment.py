"""``gem-core train``, ``report`` and ``quickstart``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gem_core.cli.output import print_json, progress_lines, quiet_libraries
from gem_core.cli.parser import QUICKSTART_TRAINER
from gem_core.errors import MissingDependencyError, RecipeError, RunError
from gem_core.runs.checkout import checkout
from gem_core.runs.directory.files import refuse_link
from gem_core.runs.directory.run_dir import IfExists, RunDir, continue_from
from gem_core.runs.recipe.load import load_recipe, override
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import check, get_trainer

_QUICKSTART = Path("runs/quickstart")


def train(arguments: argparse.Namespace) -> int:
    """Train a recipe."""
    quiet_libraries()
    from gem_core.training.experiment import run_experiment

    recipe, path, if_exists = read_request(arguments)
    run_experiment(recipe, arguments.trainer, path, if_exists, log=progress_lines())
    return 0


def read_request(arguments: argparse.Namespace) -> tuple[Recipe, Path, IfExists]:
    """Return what ``train`` is asked for: recipe, run directory, what to do if it holds a run."""
    recipe = _recipe_to_train(arguments)
    path = arguments.run or Path("runs") / f"{recipe.name}-{arguments.trainer}-seed{recipe.seed}"
    return recipe, path, _if_exists(arguments)


def _recipe_to_train(arguments: argparse.Namespace) -> Recipe:
    """Return the named recipe, or that of the run to continue, with the overrides."""
    if arguments.origin is None and arguments.baseline is None:
        raise RecipeError("Name a baseline (gem-core list --kind baselines), or use --from RUN.")
    if arguments.origin is None:
        return load_recipe(arguments.baseline, arguments.profile, arguments.overrides)
    origin = RunDir(arguments.origin)
    if arguments.baseline is not None:
        recipe = load_recipe(arguments.baseline, arguments.profile, arguments.overrides)
    elif arguments.profile:
        raise RecipeError(
            "--profile needs a baseline; --from without a baseline uses the recipe of its run."
        )
    else:
        recipe = override(origin.recipe, arguments.overrides)
    return continue_from(recipe, origin)


def _if_exists(arguments: argparse.Namespace) -> IfExists:
    if arguments.resume:
        return "resume"
    return "overwrite" if arguments.overwrite else "error"


def report(arguments: argparse.Namespace) -> int:
    """Print the table of the finished runs, their data, and draw the curves of all runs.

    As JSON, the curves are drawn only with ``--png``. Without matplotlib a warning takes their
    place, unless ``--png`` asks for them.
    """
    from gem_core.evaluation.folder import TRAINER
    from gem_core.results import (
        markdown_table,
        origin_lines,
        plain_table,
        record,
        result_rows,
    )
    from gem_core.results.data import environments_of
    from gem_core.results.tables import HEAD

    runs = [RunDir(path) for path in arguments.runs]
    for run in runs:
        if not run.exists:
            raise RunError(f"{run.path} is not a run directory (it has no recipe.json).")
        if run.info["trainer"] == TRAINER:
            raise RunError(f"{run.path} is an evaluation: see gem-core eval --table {run.path}.")
    if arguments.json:
        return _report_json(arguments, runs)
    finished = [run.result for run in runs if run.finished]
    table = markdown_table if arguments.markdown else plain_table
    print(table(HEAD, result_rows(finished)))
    for line in origin_lines(finished):
        print(line)
    for line in dict.fromkeys(line for run in runs for line in environments_of(run)):
        print(line)
    if len(finished) < len(runs):
        print(f"{len(runs) - len(finished)} of {len(runs)} runs are not finished.")
    if arguments.record:
        for run in runs:
            print(f"Recorded: {record(run, arguments.record / run.path.name).path}")
    _draw(runs, arguments.png, arguments.metric)
    return 0


def _report_json(arguments: argparse.Namespace, runs: Sequence[RunDir]) -> int:
    """Print the runs as JSON: path, trainer and, of a finished one, ``result.json``."""
    from gem_core.results import learning_curve, origin_lines, record
    from gem_core.results.data import environments_of

    rows = [
        {
            "path": str(run.path),
            "trainer": run.info["trainer"],
            "finished": run.finished,
            "result": run.result if run.finished else None,
            "environments": environments_of(run),
        }
        for run in runs
    ]
    if arguments.record:
        for run in runs:
            record(run, arguments.record / run.path.name)
    png = arguments.png and str(learning_curve(runs, arguments.png, metric=arguments.metric))
    origin = origin_lines([run.result for run in runs if run.finished])
    print_json(arguments, {"runs": rows, "origin": origin, "learning_curve": png})
    return 0


def _draw(runs: Sequence[RunDir], png: Path | None = None, metric: str = "success/mean") -> None:
    """Draw the curves and print where; a missing matplotlib is an error only with ``png``."""
    from gem_core.results import learning_curve

    target = png or refuse_link(runs[0].path / "learning-curve.png")
    try:
        print(f"Learning curve: {learning_curve(runs, target, metric=metric)}")
    except MissingDependencyError as missing:
        if png is not None:
            raise
        print(f"gem-core: warning: no learning curve. {missing}", file=sys.stderr)


def quickstart(arguments: argparse.Namespace) -> int:
    """Train a two-layer model to play small rooms of Sokoban and draw its learning curve."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # on a CPU, also on a machine with a GPU
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # it needs no network
    quiet_libraries()
    from gem_core.training.experiment import run_experiment

    _require_for_quickstart(arguments.trainer)
    recipe = load_recipe("sokoban-easy", "learn", arguments.overrides)
    # A quickstart that was interrupted continues when it is started again.
    run = run_experiment(
        recipe,
        arguments.trainer,
        arguments.run or _QUICKSTART,
        "overwrite" if arguments.overwrite else "resume",
        log=progress_lines(),
    )
    _draw([run])
    print(f"Run directory:  {run.path}  (episodes.jsonl.gz has sampled episodes)")
    return 0


def _require_for_quickstart(trainer: str) -> None:
    """Refuse where the trainer is not installed, with the line that a newcomer needs.

    Raises:
        MissingDependencyError: it is not installed.
    """
    known = get_trainer(trainer)
    if trainer != QUICKSTART_TRAINER or check(known).version is not None:
        return
    here = checkout()
    if here is not None:
        how = f"run `make quickstart` in {here}, which installs it in an environment of its own"
    else:
        low = ".".join(map(str, known.python[0]))
        how = f"pip install 'gem-core[{trainer},plot]' (Python {low} or newer), then start it again"
    raise MissingDependencyError(
        f"The quickstart trains with {known.distribution}, which is not installed: {how}."
    )
