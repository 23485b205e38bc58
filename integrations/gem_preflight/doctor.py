"""``gem-core doctor``: whether a run could start here, and how untrusted programs are isolated."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from gem_core.cli.output import print_json
from gem_core.errors import RecipeError, how_to_install
from gem_core.execution.sandbox import DEFAULTS
from gem_core.results.tables import plain_table
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import get_trainer, installed_version, trainer_names
from gem_preflight.extras import find_extras
from gem_preflight.plan import gpus_of
from gem_preflight.readiness.facts import Ask
from gem_preflight.readiness.probe import Here
from gem_preflight.readiness.verdict import Verdict, examine
from gem_sandbox import offers


def doctor(arguments: argparse.Namespace) -> int:
    """Print whether a run could start; return 1 unless every trainer that is asked for is ready.

    Without ``--trainer``, those that are installed here are asked for.
    """
    chosen = list(dict.fromkeys(arguments.trainer or ()))
    for name in chosen:
        get_trainer(name)  # a misspelt one is refused before the slow checks
    ask = _ask(arguments)
    probe = Here()
    verdicts = [examine(name, probe, ask) for name in chosen or trainer_names()]
    asked = [v for v in verdicts if chosen or v.version]
    ready = bool(asked) and all(v.ready for v in asked)
    if arguments.json:
        print_json(arguments, _data(verdicts, ready))
    else:
        _print(verdicts, overview=not chosen)
    return 0 if ready else 1


def _ask(arguments: argparse.Namespace) -> Ask:
    recipe, gigabytes = _recipe(arguments)
    return Ask(arguments.device, recipe, gigabytes, arguments.run or Path("runs"))


def _recipe(arguments: argparse.Namespace) -> tuple[Recipe | None, float | None]:
    """Read the recipe and the size of a GPU, which only a recipe can be held against."""
    if arguments.recipe is None:
        given = {"--gpus": arguments.gpus, "--profile": arguments.profile}
        for option, value in {**given, "--set": arguments.overrides}.items():
            if value:
                raise RecipeError(f"{option} belongs to a recipe: give --recipe BASELINE, too.")
        return None, None
    overrides = list(arguments.overrides)
    gigabytes = None
    if arguments.gpus:
        number, gigabytes = gpus_of(arguments.gpus)
        overrides += ["hardware.nodes=1", f"hardware.gpus_per_node={number}"]
    return load_recipe(arguments.recipe, arguments.profile, overrides), gigabytes


def _data(verdicts: Sequence[Verdict], ready: bool) -> dict[str, object]:
    return {
        "gem-core": installed_version("gem-core"),
        "python": platform.python_version(),
        "executable": sys.executable,
        "ready": ready,
        "trainers": [verdict.data() for verdict in verdicts],
        "extras": [extra.data() for extra in find_extras()],
    }


def _print(verdicts: Sequence[Verdict], *, overview: bool) -> None:
    print(f"gem-core {installed_version('gem-core')}, Python {platform.python_version()}")
    print(f"{sys.executable}\n")
    rows = [
        (v.trainer.name, v.trainer.distribution, v.version or "-", v.trainer.tested_range, v.state)
        for v in verdicts
    ]
    print(plain_table(("trainer", "package", "installed", "tested", "state"), rows))
    for verdict in verdicts:
        if verdict.version or not overview:
            _print_details(verdict)
    if any(v.ready and v.device == "cpu" for v in verdicts):
        print("\nWhat is missing for a GPU: gem-core doctor --trainer NAME --device gpu")
    if overview:
        print(
            "\nThe trainers pin conflicting packages, so each needs an environment of its own: "
            "gem-core doctor --trainer NAME has the lines, see also docs/install.md."
        )
        print(f"\n{_extras()}")
        print(f"\n{_sandbox_levels()}")


def _print_details(verdict: Verdict) -> None:
    print(f"\n{verdict.trainer.name}: {verdict.seen}")
    for problem in verdict.problems:
        print(f"\n{verdict.trainer.name}: {problem.text}")
        if problem.fix:
            print(f"    {problem.fix}")
    for note in verdict.notes:
        print(f"\n{verdict.trainer.name}, note: {note}")


def _extras() -> str:
    """Return the extras that are no trainer's: what is installed, and how one is added."""
    rows = [(e.name, e.state) for e in find_extras() if e.name not in trainer_names()]
    return f"{plain_table(('extra', 'here'), rows)}\nTo install one: {how_to_install('NAME')}"


def _sandbox_levels() -> str:
    """Return which levels of the sandbox this machine offers, and which is the default."""
    tried = offers()
    default = next((o.level for o in tried if o.how and o.level in DEFAULTS), None)
    table = plain_table(
        ("sandbox level", "here", ""),
        [(o.level, o.how or "no", "default" if o.level == default else "") for o in tried],
    )
    reasons = [o.reason for o in tried if o.reason]
    if default is None:
        reasons.append(
            "Untrusted programs cannot be isolated here: python tools and code graders need a "
            "level by name (GEM_CORE_SANDBOX=guarded is for trusted programs; see SECURITY.md)."
        )
    return "\n".join([table, *reasons])
