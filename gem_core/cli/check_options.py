"""The arguments of ``gem-core check``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse

from gem_core.cli.values import positive
from gem_core.env.interface import INFO_ERRORS


def add_check_options(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.formatter_class = argparse.RawDescriptionHelpFormatter
    allowed = "".join(f"  {name}: {meaning}\n" for name, meaning in INFO_ERRORS.items())
    verb.epilog = (
        'info["error"] is absent, or after an action that was not accepted one of:\n'
        f"{allowed}The exit code is 1 if a check fails."
    )
    verb.add_argument(
        "env",
        metavar="ID|MODULE:CLASS",
        help="an id, or a class as module:Class, which is imported from here or from the path of "
        "Python",
    )
    verb.add_argument(
        "--parameters", metavar="JSON", help='keyword arguments: {"max_turns": 4}', default="{}"
    )
    verb.add_argument("--seeds", type=positive, default=3, metavar="N", help="seeds (default: 3)")
    verb.add_argument(
        "--steps", type=positive, default=40, metavar="N", help="steps per seed (default: 40)"
    )
    verb.add_argument(
        "--skip", nargs="+", default=[], metavar="CHECK", help="names of checks to leave out"
    )
