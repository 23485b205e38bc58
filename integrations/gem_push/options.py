"""The arguments of ``gem-core push``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse
from pathlib import Path

from gem_core.cli.commands import Command
from gem_core.cli.options import add_json


def add_push_options(verb: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    verb.add_argument("run", metavar="RUN", type=Path, help="directory of a finished run")
    verb.add_argument("repo", metavar="OWNER/NAME", help="model repository of the Hub")
    verb.add_argument(
        "--dry-run",
        type=Path,
        metavar="DIR",
        help="write what would be uploaded to this new folder; nothing is sent",
    )
    verb.add_argument("--private", action="store_true", help="a new repository is private")
    verb.add_argument("--no-episodes", action="store_true", help="leave the episodes out")
    verb.add_argument(
        "--controls", type=Path, metavar="FILE", help="controls.json of gem-core controls"
    )
    verb.add_argument(
        "--lockstep", type=Path, metavar="FILE", help="lockstep summary of gem-core compare (JSON)"
    )
    add_json(verb)


COMMAND = Command(
    "upload model, card and episodes of a run to the Hugging Face Hub",
    "gem_push.command:push",
    add_push_options,
)
