"""What the scripts in recipes/ share: their command line, and the line that they end with."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe


class ScriptCall(NamedTuple):
    """What a script was called for.

    Attributes:
        recipe: the experiment, resolved.
        run: the run directory; empty only with ``show``.
        resume: continue from the last checkpoint.
        show: print what the trainer would get, and stop.
    """

    recipe: Recipe
    run: str
    resume: bool
    show: bool


def read_command_line(
    documentation: str, arguments: Sequence[str] | None = None, *, shows: str = ""
) -> ScriptCall:
    """Read the command line of a script, whose docstring is ``documentation``.

    ``arguments`` are the words of the command line, ``None``: those of this process. Only with
    ``shows``, which names it, there is an option ``--print``.

    Raises:
        RecipeError: there is no such baseline, profile or key.
        SystemExit: an option is wrong.
    """
    parser = argparse.ArgumentParser(description=documentation.splitlines()[0])
    parser.add_argument("--baseline", default="guess-the-number-easy")
    parser.add_argument("--profile", default="tiny")
    parser.add_argument("--run", default="", help="run directory")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    if shows:
        parser.add_argument(
            "--print", action="store_true", dest="show", help=f"show {shows} and stop"
        )
    parsed = parser.parse_args(arguments)
    show = bool(shows) and parsed.show
    if not parsed.run and not show:
        parser.error("--run is needed to train: the directory of the run")
    recipe = load_recipe(parsed.baseline, parsed.profile, parsed.overrides)
    return ScriptCall(recipe, parsed.run, parsed.resume, show)


def describe_end(run: RunDir) -> str:
    """Return one line about a run that was trained."""
    last = run.metrics()[-1]
    return f"step {last['step']}: success {last['success/mean']:.3f}, model in {run.model}"
