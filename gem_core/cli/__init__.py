"""The command ``gem-core``. Each subcommand is a function of a module of this package.

The module of a subcommand is imported when it is used, so that ``gem-core list`` is fast.
"""

from __future__ import annotations

import os
import select
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout

from gem_core.cli.expected import in_one_line
from gem_core.cli.output import set_up_output, wants_tracebacks
from gem_core.cli.parser import build_parser
from gem_core.errors import GemError

__all__ = ["main"]

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        argv: arguments without the program's name; ``None`` = those of the process.

    Returns:
        The exit code: 0; 1 where a check fails; 2 for an error that the user can correct, which is
        printed in one line on stderr (``-v`` or ``GEM_CORE_DEBUG=1`` print its traceback, too); 75
        for a run that SIGTERM stopped; 130 after Ctrl-C. Any other exception is a defect and is
        raised.
    """
    try:
        return _run(argv)
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        # The reader (head, less) closed the pipe; keep the interpreter from flushing into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _tell_traceback()
        print("gem-core: interrupted by Ctrl-C.", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        line = in_one_line(error)
        if line is None:
            raise
        _tell_traceback()
        print(f"gem-core: {line}", file=sys.stderr)
        return error.exit_code if isinstance(error, GemError) else GemError.exit_code


def _run(argv: Sequence[str] | None) -> int:
    from gem_core.env.registration.references import trust
    from gem_core.runs.trainers import resolve

    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit:
        sys.stdout.flush()  # of --help; the reader may be gone
        raise
    set_up_output(arguments)
    arguments.stdout = sys.stdout
    out = sys.stderr if getattr(arguments, "json", False) else sys.stdout
    with redirect_stdout(out), trust(getattr(arguments, "trust", False)):
        code: int = resolve(arguments.verb)(arguments)
    sys.stdout.flush()
    return code


def _tell_traceback() -> None:
    if wants_tracebacks():
        traceback.print_exc()


def _reader_is_gone() -> bool:
    """Return whether it is the standard output whose reader has gone, and not another pipe's."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
