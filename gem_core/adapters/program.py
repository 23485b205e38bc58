"""Run a trainer that is a program of its own, with its output in a file."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from gem_core.errors import GemError

_SHOWN = 40


def run_program(
    name: str, command: Sequence[str], environment: Mapping[str, str], log: Path
) -> None:
    """Run ``command`` to its end; on Linux it also ends when this process ends, however that ends.

    Args:
        name: name of the trainer, for the message.
        command: the program and its arguments.
        environment: all of its environment variables.
        log: the file to which its output is appended.

    Raises:
        GemError: it ended with an error; the message contains the last lines of ``log``.
    """
    with log.open("ab") as output:
        code = run_process(command, environment, output)
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN:]
        raise GemError(
            f"{name} ended with exit code {code}; the end of {log}:\n" + "\n".join(lines)
        )


def run_process(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
) -> int:
    """Run ``command`` to its end in a session of its own; return its exit code.

    A signal for the group of this process, as from ``timeout``, does not reach it: this process
    decides what becomes of it. On Linux it is ended when this process ends, however that ends.

    Args:
        command: the program and its arguments.
        environment: all of its environment variables; ``None`` = those of this process.
        output: receives what it prints; ``None`` = where this process prints.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )
    try:
        return process.wait()
    finally:
        process.terminate()
        process.wait()


def _end_with_parent() -> None:
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
