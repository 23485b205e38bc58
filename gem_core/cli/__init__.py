"""The command ``gem-core``. Each subcommand is a function of a module of this package.

The module of a subcommand is imported when it is used, so that ``gem-core list`` is fast.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from gem_core.cli.parser import build_parser
from gem_core.errors import GemError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        argv: arguments without the program's name; ``None`` = those of the process.

    Returns:
        The exit code: 0; 1 where a check fails; 2 for an error that the user can correct, which is
        printed in one line on stderr; 75 for a run that SIGTERM stopped. Any other exception is a
        defect and is raised.
    """
    arguments = build_parser().parse_args(argv)
    try:
        return _run(arguments)
    except GemError as error:
        print(f"gem-core: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader (head, less) closed the pipe; keep the interpreter from flushing into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(arguments: argparse.Namespace) -> int:
    from gem_core.registration.references import trust
    from gem_core.training.trainers import resolve

    with trust(getattr(arguments, "trust", False)):
        code: int = resolve(arguments.verb)(arguments)
    sys.stdout.flush()
    return code
