"""The arguments of ``gem-core plan``, ``doctor`` and ``train --dry-run``; no import of what these
need.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gem_core.cli.commands import Command
from gem_core.cli.options import add_json, add_set


def add_doctor_options(verb: argparse.ArgumentParser) -> None:
    """Add those of ``doctor``."""
    verb.add_argument(
        "--trainer",
        nargs="+",
        metavar="NAME",
        help="check only these; exit code 1 unless all are ready (default: those installed here)",
    )
    verb.add_argument(
        "--device",
        choices=("cpu", "gpu"),
        help="where the run is to train (default: on a GPU if there is one)",
    )
    verb.add_argument("--recipe", metavar="BASELINE|FILE", help="also check that this could start")
    verb.add_argument(
        "--profile", help="profile of the recipe: tiny, small, paper, or a file (TOML, YAML)"
    )
    verb.add_argument(
        "--gpus", metavar="NxGB", help="GPUs to reckon with for the recipe: 8x80 = 8 of 80 GB"
    )
    verb.add_argument("--run", type=Path, metavar="DIR", help="where the run would be written")
    add_json(verb)
    add_set(verb)


def add_plan_options(verb: argparse.ArgumentParser) -> None:
    """Add those of ``plan``."""
    verb.add_argument(
        "baseline", metavar="BASELINE|FILE", help="a shipped baseline or a file (TOML, YAML)"
    )
    verb.add_argument("--trainer", required=True, help="name of the trainer")
    verb.add_argument(
        "--gpus", required=True, metavar="NxGB", help="GPUs of one machine: 8x80 = 8 of 80 GB"
    )
    verb.add_argument("--profile", help="tiny (for CPUs), paper (for GPUs), or a file (TOML, YAML)")
    add_json(verb)
    add_set(verb)


def add_dry_run(verb: argparse.ArgumentParser) -> None:
    """Add ``--dry-run`` to ``train``: another function gets the same arguments."""
    verb.add_argument(
        "--dry-run",
        action="store_const",
        dest="verb",
        const="gem_preflight.dry_run:dry_run",
        help="check the recipe and this machine, print what would be started, write nothing; exit "
        "code 1 if it could not start here",
    )


DOCTOR = Command(
    "check whether a run could start here; what is missing",
    "gem_preflight.doctor:doctor",
    add_doctor_options,
)
PLAN = Command(
    "compute whether a recipe fits into the memory of GPUs",
    "gem_preflight.plan:plan",
    add_plan_options,
    {"train": add_dry_run},
)
