"""The arguments of ``gem-core conform``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse
from pathlib import Path

from gem_core.cli.commands import Command
from gem_core.cli.options import add_json, add_set


def add_conform_options(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument("trainer", nargs="?", metavar="NAME", help="name of the trainer")
    verb.add_argument("--list", action="store_true", help="print the checks, and run none")
    verb.add_argument(
        "--only", nargs="+", metavar="CHECK", default=[], help="run these checks (default: all)"
    )
    verb.add_argument(
        "--case",
        nargs="+",
        metavar="CASE",
        default=[],
        dest="cases",
        help="of the checks that have several cases, check these (default: all); a report names "
        "the cases",
    )
    verb.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder of the report and of the runs (default: runs/conform-NAME)",
    )
    add_json(verb)
    add_set(verb)


COMMAND = Command(
    "check that a trainer's adapter keeps what gem-core promises of every trainer",
    "gem_conform.command:conform",
    add_conform_options,
)
