"""A trainer's own program as a child process."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gem_core.errors import RunError

SHOWN_LINES = 60
_SET_PARENT_DEATH_SIGNAL = 1


def run_logged(
    name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
) -> None:
    """Run ``command`` to its end; it never outlives this process, however that ends.

    Args:
        name: what is run, for the error.
        command: program and arguments.
        log: file that its output is appended to.
        environment: all of its environment variables.

    Raises:
        RunError: it ended with an error; the message shows the end of the log.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=_end_with_parent,
        )
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN_LINES:]
        tail = "\n".join(lines)
        raise RunError(f"{name} ended with exit code {code}; the end of {log}:\n{tail}")


def _end_with_parent() -> None:
    """In the child: be told to end when the parent dies, so that a killed run does not train on."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
