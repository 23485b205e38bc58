"""Runs a trainer to the end of all of its processes, and waits for the memory of its GPU.

A trainer starts programs in sessions of their own (torchrun, Ray, launchpad), so that neither its
process group nor its children are all of them. They inherit its environment: each run has a mark
there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

VARIABLE = "GEM_CORE_GPU_RUN"
"""Environment variable that marks the processes of a run."""
SLACK_MIB = 512
"""Memory of a GPU that may stay in use: contexts of others, which come and go."""
_GRACE_S = 30.0
"""Seconds between SIGTERM and SIGKILL for a trainer that takes too long."""
_LEFT_S = 10.0
"""The same for what a trainer leaves behind."""
_POLL_S = 0.1


def execute(
    command: Sequence[str],
    log: Path,
    run: Path,
    limits: tuple[float, float],
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Run a trainer with its output in ``log``, until none of its processes is left.

    Args:
        command: the program.
        log: gets its output.
        run: its run directory; ``metrics.jsonl`` there has a line when the first step is over.
        limits: seconds until then, and seconds after that.
        environment: its environment variables.

    Returns:
        ``exit`` (exit code; ``None`` = it was ended), ``first_step_s`` (seconds until the first
        step was over; ``None`` = it never was) and ``left`` (processes that it left behind).
    """
    mark = uuid.uuid4().hex
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment, VARIABLE: mark},
            start_new_session=True,
        )
        try:
            code, first_step_s = follow(process, run / "metrics.jsonl", limits)
        finally:
            end(process)
            left = end_marked(mark, _LEFT_S)
    return {"exit": code, "first_step_s": first_step_s, "left": left}


def follow(
    process: subprocess.Popen[bytes], metrics: Path, limits: tuple[float, float]
) -> tuple[int | None, float | None]:
    """Wait for a trainer within its limits; return exit code and time of its first step."""
    began = time.monotonic()
    first_step_s = None
    until = began + limits[0]
    while True:
        try:
            return process.wait(_POLL_S), first_step_s
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        if first_step_s is None and metrics.exists() and metrics.stat().st_size:
            first_step_s = now - began
            until = now + limits[1]
        if now > until:
            return None, first_step_s


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program and its session, if it still runs."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def marked(mark: str) -> list[int]:
    """Return the process ids of a run; this process is none of them. It reads ``/proc``."""
    wanted = f"{VARIABLE}={mark}".encode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and wanted in _environment(pid)]


def end_marked(mark: str, grace_s: float) -> int:
    """End what is left of a run: SIGTERM, and SIGKILL after ``grace_s``; return how many it was.

    It returns when none is left.
    """
    left = marked(mark)
    _signal(left, signal.SIGTERM)
    until = time.monotonic() + grace_s
    while marked(mark) and time.monotonic() < until:
        time.sleep(_POLL_S)
    while others := marked(mark):  # again, should one of them have started another
        _signal(others, signal.SIGKILL)
        time.sleep(_POLL_S)
    return len(left)


def used_mib(gpu: str) -> int | None:
    """Return the memory of a GPU that is in use, in MiB; ``None`` where nothing can say it."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "-i", gpu, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stdout.strip()
    return int(said) if done.returncode == 0 and said.isdigit() else None


def wait_for_memory(gpu: str, before_mib: int | None, patience_s: float) -> dict[str, Any] | None:
    """Wait until a GPU has its memory back: a driver takes a while after a process has ended.

    Args:
        gpu: as ``CUDA_VISIBLE_DEVICES`` names it.
        before_mib: what was in use before the run.
        patience_s: seconds after which the next trainer is started all the same.

    Returns:
        ``before_mib``, ``after_mib`` and ``free`` (whether it is as before); ``None`` where nothing
        can say it.
    """
    until = time.monotonic() + patience_s
    while before_mib is not None and (after := used_mib(gpu)) is not None:
        free = after <= before_mib + SLACK_MIB
        if free or time.monotonic() >= until:
            return {"before_mib": before_mib, "after_mib": after, "free": free}
        time.sleep(_POLL_S)
    return None


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:  # it is gone, or another user's
        return []


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it ended in the meantime
            os.kill(pid, number)
