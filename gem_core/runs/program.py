"""Run a trainer that is a program of its own, or several programs, with their output in files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from gem_core.errors import GemError

_SHOWN = 40
_POLL_S, _PATIENCE_S = 0.1, 10.0
"""Seconds between looks at programs, and until one that was asked to end is killed."""

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
        raise _failure(f"{name} ended with exit code {code}", log)


class Program(NamedTuple):
    """One of several programs; the first four fields are as of `run_program`."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    sign: Path
    """File that the program touches whenever it has got on."""


def run_programs(programs: Sequence[Program], silence_s: float) -> None:
    """Run programs side by side, as `run_program` runs one; the first that fails ends all.

    Raises:
        GemError: one ended with an error, or gave no sign for ``silence_s`` seconds; the message
            contains the last lines of its log.
    """
    began, running = time.time(), list[tuple[Program, "subprocess.Popen[bytes]"]]()
    try:
        for program in programs:
            with program.log.open("ab") as output:
                running.append((program, _start(program.command, program.environment, output)))
        while running:
            time.sleep(_POLL_S)
            for program, process in list(running):
                if process.poll() == 0:
                    running.remove((program, process))
                else:
                    _require_life(program, process.returncode, began, silence_s)
    finally:
        _end([process for _, process in running])


def _require_life(program: Program, code: int | None, began: float, silence_s: float) -> None:
    """Raise the error of a program that has failed, or that has given no sign for too long."""
    if code is not None:
        raise _failure(f"{program.name} ended with exit code {code}", program.log)
    last = program.sign.stat().st_mtime if program.sign.exists() else began
    if time.time() - max(last, began) > silence_s:
        raise _failure(f"{program.name} has not got on for {silence_s:g} s", program.log)


def _failure(what: str, log: Path) -> GemError:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN:]
    return GemError(f"{what}; the end of {log}:\n" + "\n".join(lines))


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End programs that run, and what those that run or failed have left in their sessions."""
    for process in processes:
        process.terminate()
    limit = time.monotonic() + _PATIENCE_S
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, limit - time.monotonic()))
        with suppress(ProcessLookupError, PermissionError):  # none is left, or a zombie
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


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
    process = _start(command, environment, output)
    try:
        return process.wait()
    finally:
        process.terminate()
        process.wait()


def _start(
    command: Sequence[str], environment: Mapping[str, str] | None, output: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        _ending_with_this_process(command),
        env=environment,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=True,
    )


def _ending_with_this_process(command: Sequence[str]) -> list[str]:
    """The command that is ended (on Linux) when this process ends."""
    if shutil.which(command[0]) is None:
        raise GemError(f"there is no program {command[0]!r}; install it or correct its path")
    if sys.platform != "linux":
        return list(command)
    isolated = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_PARENT]
    return [*isolated, str(os.getpid()), *command]
