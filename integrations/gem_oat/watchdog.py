"""Ends what is left of a run's processes; a program of its own, which imports nothing of the run.

    python watchdog.py MARK GRACE

It waits until its standard input ends, which is when the process that started it ends, however
that ends. Then every process whose environment has ``GEM_OAT_NODES=MARK`` gets SIGTERM, and after
``GRACE`` seconds SIGKILL. Launchpad's nodes and what they start (plasma's store) inherit the mark;
process groups and parents do not find them all, since launchpad may be killed before its nodes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

VARIABLE = "GEM_OAT_NODES"
"""Environment variable that marks the processes of a run."""
_POLL_S = 0.1


def main() -> None:
    """Wait for the end of the launching process, then end what it left."""
    mark, grace = sys.argv[1], float(sys.argv[2])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_marked(mark, grace)


def end_marked(mark: str, grace: float) -> None:
    """Send SIGTERM to the marked processes, and SIGKILL to those that are there ``grace`` later."""
    _signal(marked(mark), signal.SIGTERM)
    until = time.monotonic() + grace
    while marked(mark) and time.monotonic() < until:
        time.sleep(_POLL_S)
    while left := marked(mark):  # again, should one of them have started another
        _signal(left, signal.SIGKILL)
        time.sleep(_POLL_S)


def marked(mark: str) -> list[int]:
    """Return the process ids that have the mark; this process is none of them."""
    wanted = f"{VARIABLE}={mark}".encode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and wanted in _environment(pid)]


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:  # it is gone, or another user's
        return []


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


if __name__ == "__main__":
    main()
