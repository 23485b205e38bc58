"""The arguments of ``gem-core completion``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse

from gem_core.cli.commands import Command

SHELLS = ("bash", "zsh", "fish")


def add_completion_options(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument("shell", choices=SHELLS, help="the shell whose script is printed")


COMMAND = Command(
    "print a script that completes these commands in a shell",
    "gem_completion.command:completion",
    add_completion_options,
)
