"""Run a trainer that is a program of its own, with its output in a file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from gem_core.errors import GemError

_SHOWN = 40

# A program of its own in place of `preexec_fn`, for which Python copies the whole process by
# `fork`: one with a large mapping (Ray's, CUDA's) cannot be copied ("Cannot allocate memory"), one
# with threads may hang. Asking for the signal is kept across `exec`.
_ENDS_WITH_PARENT = """
import ctypes, os, signal, sys
set_parent_death_signal = 1
ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that started this one has ended")
os.execvp(sys.argv[2], sys.argv[2:])
"""


def run_program(
    name: str, command: Sequence[str], environment: Mapping[str, str], log: Path
) -> None:
    """Run ``command`` to its end; on Linux it also ends when this process ends, however that ends.

    ``environment`` has all of its variables. Its output is appended to ``log``.

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
    Without ``environment`` it has the variables of this process, and without ``output`` it prints
    where this process prints.

    Raises:
        GemError: there is no such program.
    """
    process = subprocess.Popen(
        _ending_with_this_process(command),
        env=environment,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait()
    finally:
        process.terminate()
        process.wait()


def _ending_with_this_process(command: Sequence[str]) -> list[str]:
    """The command that is ended (on Linux) when this process ends."""
    if shutil.which(command[0]) is None:
        raise GemError(f"there is no program {command[0]!r}; install it or correct its path")
    if sys.platform != "linux":
        return list(command)
    isolated = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_PARENT]
    return [*isolated, str(os.getpid()), *command]
