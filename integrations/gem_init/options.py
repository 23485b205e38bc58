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


COMMAND = Command(
    "write a package with an environment, a tool, an estimator, players and tests of your own",
    "gem_init.command:init",
    add_init_options,
)
