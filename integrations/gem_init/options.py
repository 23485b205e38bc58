"""The arguments of ``gem-core init``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse
from pathlib import Path

from gem_core.cli.commands import Command


def add_init_options(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="the new folder, such as my-envs; the names of the package are made of its name",
    )
    verb.add_argument(
        "--trainer",
        action="store_true",
        help="write the adapter of a trainer instead, in a folder such as my-trainer",
    )


COMMAND = Command(
    "write a package of your own: an environment, a tool, an estimator, players; or a trainer",
    "gem_init.command:init",
    add_init_options,
)
