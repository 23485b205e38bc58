"""``gem-core train --dry-run``: print what would be started; write and start nothing."""

from __future__ import annotations

import argparse
import os
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from gem_core.cli.experiment import read_request
from gem_core.cli.output import is_verbose, quiet_libraries
from gem_core.policies.models.weights import TINY
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import check
from gem_preflight.preview import Preview, preview

WIDTH = 100
LABEL = 13
LONGEST = 60
"""Characters of a native setting that are printed."""


def dry_run(arguments: argparse.Namespace) -> int:
    """Print what ``train`` would start; return 1 if it could not start on this machine.

    Raises:
        GemError: ``train`` would refuse the recipe or the run directory on every machine.
    """
    quiet_libraries()
    offline = os.environ.get("HF_HUB_OFFLINE", "0") != "0"
    os.environ["HF_HUB_OFFLINE"] = "1"  # what is downloaded would be written to a cache
    recipe, path, if_exists = read_request(arguments)
    found = preview(recipe, arguments.trainer, path, if_exists)
    print(f"Dry run of {recipe.name} with {found.trainer.name}: nothing is written or started.")
    for label, text in describe(found):
        print(label_lines(label, text))
    for problem in dict.fromkeys(found.problems):
        print(f"\nCannot start here: {problem}")
    if not found.environments and not offline:
        print("\nA dry run downloads nothing; a run would ask the Hub for data that are not here.")
    return 1 if found.problems else 0


def describe(found: Preview) -> Iterator[tuple[str, str]]:
    """Yield what would be started: label and text."""
    recipe, trainer = found.recipe, found.trainer
    version = check(trainer).version or "not installed"
    yield "trainer", f"{trainer.distribution} {version} (tested: {trainer.tested_range})"
    yield "run folder", f"{found.run.path}: {_state(found.run, found.if_exists)}"
    yield "training", _training(recipe)
    yield "evaluation", _evaluation(recipe)
    yield "model", _model(recipe)
    for line in found.environments:
        yield "environment", line
    yield "settings", _settings(found.native)
    yield "starts", _program(found)


def label_lines(label: str, text: str) -> str:
    """Return a line with its label; a long text has several, the same on every terminal.

    >>> label_lines("model", "tiny")
    'model        tiny'
    """
    lines = textwrap.wrap(text, WIDTH - LABEL, break_long_words=False, break_on_hyphens=False)
    return f"{label:<{LABEL}}" + f"\n{'':<{LABEL}}".join(lines)


def _state(run: RunDir, if_exists: str) -> str:
    if not run.exists:
        return "new"
    if if_exists == "overwrite":
        return "the run in it would be deleted"
    if run.finished:
        return "finished; nothing would be done"
    if run.trained:
        return "trained; only the evaluation would be made"
    steps = len(run.metrics())
    return f"{steps} steps are logged; training would continue after its last checkpoint"


def _training(recipe: Recipe) -> str:
    hardware, train = recipe.hardware, recipe.train
    gpus = f"{hardware.gpus} GPU" + ("s" if hardware.gpus > 1 else "")
    nodes = f" of {hardware.nodes} machines" if hardware.nodes > 1 else ""
    where = "a CPU" if hardware.device == "cpu" else gpus + nodes
    total = train.steps * recipe.batch.episodes
    return f"{train.steps} steps of {recipe.batch.episodes} episodes ({total} in all), on {where}"


def _evaluation(recipe: Recipe) -> str:
    evaluation = recipe.eval
    parts = []
    if evaluation.episodes:
        parts.append(f"{evaluation.episodes} episodes before and after, by {evaluation.engine}")
    if evaluation.every:
        parts.append(f"{evaluation.inside_episodes} episodes every {evaluation.every} steps")
    return "; ".join(parts) or "none"


def _model(recipe: Recipe) -> str:
    path = recipe.model.path
    return f"{path} (made and warm-started when a run needs it)" if path == TINY else path


def _settings(native: Any) -> str:
    """Return the native settings; long ones are cut without ``-v``."""
    if native is None:
        return "not known here"
    words = (
        [f"{key}={value}" for key, value in flatten(native).items()]
        if isinstance(native, Mapping)
        else [str(word) for word in native]
    )
    most = max(map(len, words), default=0) if is_verbose() else LONGEST
    return " ".join(word if len(word) <= most else f"{word[: most - 3]}..." for word in words)


def _program(found: Preview) -> str:
    if found.command is None:
        return "not known here"
    return shlex.join(found.command) or "no program: training is in the process of gem-core"
