"""The arguments of ``gem-core view``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse
from pathlib import Path

from gem_core.cli.commands import Command
from gem_core.cli.options import add_trust
from gem_core.cli.values import port, positive


def add_view_options(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument(
        "runs",
        nargs="*",
        type=Path,
        metavar="RUN",
        help="run directories, or directories of runs (default: runs)",
    )
    verb.add_argument("--port", type=port, default=8765, help="port (default: %(default)s)")
    verb.add_argument("--open", action="store_true", help="open the browser")
    verb.add_argument(
        "--export", type=Path, metavar="FILE", help="write one HTML file instead of serving"
    )
    verb.add_argument(
        "--episodes",
        type=positive,
        default=200,
        help="episodes of each run in an exported file, the last ones (default: %(default)s)",
    )
    add_trust(verb)


COMMAND = Command(
    "show runs and their episodes in a browser, on this machine",
    "gem_view.command:view",
    add_view_options,
)
