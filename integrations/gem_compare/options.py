"""The arguments of ``gem-core compare``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse
from pathlib import Path

from gem_core.cli.commands import Command
from gem_core.cli.options import add_set
from gem_core.cli.values import positive, positive_seconds


def add_compare_options(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    baselines = verb.add_mutually_exclusive_group()
    baselines.add_argument(
        "--baselines",
        nargs="+",
        default=["guess-the-number-easy"],
        metavar="NAME",
        help="baselines: names or files (default: guess-the-number-easy)",
    )
    baselines.add_argument(
        "--suite", action="store_true", help="all baselines of the suite (gem-core list)"
    )
    verb.add_argument("--trainers", nargs="+", metavar="NAME", help="trainers (default: all)")
    verb.add_argument(
        "--algorithms",
        nargs="+",
        default=["rebn"],
        metavar="NAME",
        help="algorithms (default: rebn)",
    )
    verb.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=[0],
        metavar="N",
        help="seeds of the runs (default: 0)",
    )
    verb.add_argument("--profile", default="tiny", help="profile (default: %(default)s)")
    _add_grid_options(verb)
    add_set(verb)


def _add_grid_options(verb: argparse.ArgumentParser) -> None:
    """Add where and how the cells of a comparison are run."""
    verb.add_argument(
        "--out",
        type=Path,
        help="directory of the comparison (default: runs/compare; for --quick runs/compare-quick, "
        "for --lockstep runs/lockstep)",
    )
    verb.add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="copy the figures of every finished cell to DIR; a cell that is there is done",
    )
    verb.add_argument(
        "--budget",
        type=positive_seconds,
        metavar="SECONDS",
        help="limit of each cell's training time, without start, evaluation and pauses "
        "(default: none)",
    )
    verb.add_argument(
        "--idle",
        type=positive_seconds,
        metavar="SECONDS",
        help="end a cell that writes nothing for so long (default: never)",
    )
    verb.add_argument("--retry-failed", action="store_true", help="run failed cells again")
    verb.add_argument(
        "--retry-stale", action="store_true", help="replace finished cells of another recipe"
    )
    modes = verb.add_mutually_exclusive_group()
    modes.add_argument(
        "--quick", action="store_true", help="3 steps of the first baseline, small evaluations"
    )
    modes.add_argument(
        "--lockstep",
        action="store_true",
        help="runs that are compared token by token: where do two trainers differ first?",
    )
    verb.add_argument(
        "--steps", type=positive, metavar="N", help="training steps of --lockstep (default: 20)"
    )
    verb.add_argument(
        "--allow-dirty",
        action="store_true",
        help="also with uncommitted changes; the results are marked with a + behind the commit",
    )
    verb.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    verb.add_argument(
        "--report-only", action="store_true", help="only write the report of finished cells"
    )


COMMAND = Command(
    "run a grid of baselines, trainers, algorithms and seeds",
    "gem_compare.command:compare",
    add_compare_options,
)
