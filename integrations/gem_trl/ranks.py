"""The processes of a run on several ranks: they end with their parent, and never overlap.

A killed launcher leaves its ranks for a moment, and a killed ``torchrun`` leaves them for good. A
run that is resumed meanwhile would read checkpoints that the old ranks still write.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import time
from pathlib import Path
from typing import IO

import torch.distributed as dist

from gem_core.errors import RunError

PATIENCE_S = 60.0
"""How long a rank waits for the end of its predecessor."""
_TORCHRUN = "TORCHELASTIC_RUN_ID"
_SET_PARENT_DEATH_SIGNAL = 1
_held: dict[Path, IO[str]] = {}


def end_with_parent() -> None:
    """Have this process killed when the ``torchrun`` that started it ends; on Linux.

    Raises:
        RunError: it has ended already.
    """
    if _TORCHRUN not in os.environ:
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if parent == 1 or os.getppid() != parent:
        raise RunError("The torchrun that started this process has ended; resume the run.")


def leave_ranks() -> None:
    """Wait for the other ranks of a ``torchrun``, then end this process's part of the group.

    Left to the end of the interpreter, the group's threads sometimes abort the process. `torchrun`
    then calls a finished run failed and kills the ranks that are still writing.
    """
    if _TORCHRUN in os.environ and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def hold_rank(folder: Path, rank: int, patience_s: float = PATIENCE_S) -> None:
    """Hold a rank's place in a run until this process ends; wait for the one that has it.

    Args:
        folder: directory of the run's checkpoints.
        rank: number of this process.
        patience_s: seconds to wait.

    Raises:
        RunError: another process still holds it.
    """
    path = (folder / f".rank-{rank}.lock").resolve()
    if path in _held:
        return
    folder.mkdir(parents=True, exist_ok=True)
    file = path.open("a+", encoding="utf-8")
    deadline = time.monotonic() + patience_s
    while not _lock(file):
        if time.monotonic() > deadline:
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise RunError(
                f"{folder}: process {owner} of an earlier session still trains as rank {rank}: end "
                "it, then resume the run."
            )
        time.sleep(0.1)
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    _held[path] = file  # the lock ends with the open file


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
