"""The processes of a cell: one session, which holds the lock of the cell's directory."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_GRACE_S = 20.0


def end_session(leader: int, grace_s: float = _GRACE_S) -> None:
    """End every process of a session: terminate them, and kill them after ``grace_s`` seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(leader, number)
        except ProcessLookupError:
            return
        ends = time.monotonic() + grace_s
        while time.monotonic() < ends and _group_alive(leader):
            time.sleep(0.05)


def _group_alive(leader: int) -> bool:
    """Return whether the process group has a process that is not a zombie."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            return True
    return False


@contextmanager
def lock_cell(directory: Path) -> Iterator[int]:
    """Hold the lock of a cell; end a process of an earlier runner that still holds it.

    The process of the cell inherits the lock, and holds it as long as it lives. `filelock` keeps
    its descriptor to itself, and a program that is executed does not get it.

    Yields:
        The file descriptor of the lock, for the process of the cell.
    """
    with (directory / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            end_session(int((directory / "pid").read_text()))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file.fileno()
