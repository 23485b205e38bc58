"""Find and end processes by their session, which a confined program cannot leave."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator


def end_session(session: int) -> None:
    """End every process of a session whose first process has ended.

    Nothing happens where there is no /proc.
    """
    for _ in range(100):
        left = list(members(session))
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def members(session: int) -> Iterator[int]:
    """Yield the ids of the living processes of a session."""
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return
    for name in filter(str.isdigit, names):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The second field, the command in brackets, may contain any character.
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] != b"Z":
            yield int(name)
