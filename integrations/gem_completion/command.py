"""``gem-core completion``: print the script of a shell."""

from __future__ import annotations

import argparse

from gem_completion.script import completion_script
from gem_core.cli.parser import build_parser


def completion(arguments: argparse.Namespace) -> int:
    """Print the script; it has the names that are known when it is made.

    Raises:
        MissingDependencyError: shtab is missing.
    """
    print(completion_script(build_parser(), arguments.shell))
    return 0
