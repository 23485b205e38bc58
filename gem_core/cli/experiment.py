"""``gem-core train``, ``report`` and ``quickstart``."""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

from gem_core.errors import RecipeError, RunError
from gem_core.training.recipe import Recipe, load_recipe, override
from gem_core.training.run_files import refuse_link
from gem_core.training.runs import IfExists, RunDir, continue_from

_QUICKSTART = Path("runs/quickstart")
_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Environment variables that suppress output of libraries; a quickstart needs no network."""


def train(arguments: argparse.Namespace) -> int:
    """Train a recipe."""
    from gem_core.experiment import run_experiment

    recipe = _recipe_to_train(arguments)
    path = arguments.run or Path("runs") / f"{recipe.name}-{arguments.trainer}-seed{recipe.seed}"
    run_experiment(recipe, arguments.trainer, path, _if_exists(arguments))
    return 0


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
    """Print the table of the finished runs, their data, and draw the curves of all runs."""
    from gem_core.evaluation.folder import TRAINER
    from gem_core.report import (
        learning_curve,
        markdown_table,
        origin_lines,
        plain_table,
        record,
        result_rows,
    )
    from gem_core.report.data import environments_of
    from gem_core.report.tables import HEAD

    runs = [RunDir(path) for path in arguments.runs]
    for run in runs:
        if not run.exists:
            raise RunError(f"{run.path} is not a run directory (it has no recipe.json).")
        if run.info["trainer"] == TRAINER:
            raise RunError(f"{run.path} is an evaluation: see gem-core eval --table {run.path}.")
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
    target = arguments.png or refuse_link(runs[0].path / "learning-curve.png")
    print(f"Learning curve: {learning_curve(runs, target, metric=arguments.metric)}")
    return 0


def quickstart(arguments: argparse.Namespace) -> int:
    """Train the tiny model on the smallest game and draw its learning curve."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # on a CPU, also on a machine with a GPU
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    warnings.simplefilter("ignore", FutureWarning)
    from gem_core.experiment import run_experiment
    from gem_core.report import learning_curve

    recipe = load_recipe("guess-the-number-easy", "tiny", arguments.overrides)
    # A quickstart that was interrupted continues when it is started again.
    run = run_experiment(
        recipe,
        arguments.trainer,
        arguments.run or _QUICKSTART,
        "overwrite" if arguments.overwrite else "resume",
    )
    print(f"Learning curve: {learning_curve([run], refuse_link(run.path / 'learning-curve.png'))}")
    print(f"Run directory:  {run.path}  (episodes.jsonl.gz has sampled episodes)")
    return 0
