"""Limits of a cell: its training time, and how long it may be silent.

Only the seconds of training steps count against a budget: a trainer's start-up, the warm start,
evaluations and pauses between two sessions do not, and on another machine a step that was already
paid for is not paid for again. A cell that hangs trains no step; it is ended when none of its files
grew for ``idle_s`` seconds.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Protocol

from gem_core.runs.directory.run_dir import RunDir

_POLL_S = 0.5
_GROWING = ("metrics.jsonl", "evals.jsonl", "log.txt")


class Waitable(Protocol):
    """What `wait` needs of a process, see `subprocess.Popen`."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, or raise `subprocess.TimeoutExpired`."""


def training_seconds(directory: Path) -> float:
    """Return the seconds of all training steps of a run so far, of all of its sessions."""
    return float(sum(row.get("time/step", 0.0) for row in RunDir(directory).metrics()))


def wait(
    process: Waitable,
    directory: Path,
    budget_s: float | None,
    idle_s: float | None,
) -> str | None:
    """Wait for the end of a cell.

    Args:
        process: the cell's process.
        directory: its run directory.
        budget_s: largest number of seconds of training; ``None`` = no limit.
        idle_s: largest number of seconds in which no file of the run grows; ``None`` = no limit. It
            counts while this function runs: a machine that was suspended has not been idle.

    Returns:
        Why the cell has to be ended; ``None`` if it ended by itself.
    """
    idle = 0.0
    sizes = _sizes(directory)
    while True:
        try:
            process.wait(_POLL_S)
            return None
        except subprocess.TimeoutExpired:
            before, sizes = sizes, _sizes(directory)
        idle = idle + _POLL_S if sizes == before else 0.0
        if idle_s is not None and idle >= idle_s:
            return f"wrote nothing for {idle_s:g} s"
        if budget_s is not None and sizes != before and training_seconds(directory) > budget_s:
            return f"trained longer than its budget of {budget_s:g} s"


def _sizes(directory: Path) -> list[int]:
    paths = [directory / name for name in _GROWING]
    return [path.stat().st_size if path.exists() else 0 for path in paths]
