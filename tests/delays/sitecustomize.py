"""Random delays in event loops, threads, pipes and starts of processes: ``make test-delays``.

Python imports this module in every process that has this folder in ``PYTHONPATH``; it does nothing
without ``GEM_TEST_DELAYS``, the share of places that are late, from 0 to 1. A test that passes by
who is first fails with it sooner or later, as it would on a busy machine.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

VARIABLE = "GEM_TEST_DELAYS"
SHORT_S = 0.006
LONG_S = (0.02, 0.12)
LONG_SHARE = 0.15
"""Of the places that are late, those that are so for long."""
BUDGET_S = 3.0
"""Seconds of delays that a process may save up; else tests of thousands of calls would not end."""
SAVED_PER_S = 0.4
SWITCH_S = 0.0005
"""Between changes of the running thread; Python's own is ten times longer."""


class Delays:
    """Sleeps now and then, within a budget that fills up with time.

    Args:
        share: of the calls that sleep.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._random = random.Random()  # each process and run has delays of its own
        self._sleep = time.sleep
        self._left = BUDGET_S
        self._seen = time.monotonic()

    def late(self) -> None:
        """Sleep, or not."""
        now = time.monotonic()
        self._left = min(BUDGET_S, self._left + SAVED_PER_S * (now - self._seen))
        self._seen = now
        if self._left <= 0 or self._random.random() >= self.share:
            return
        long = self._random.random() < LONG_SHARE
        seconds = self._random.uniform(*LONG_S) if long else self._random.uniform(0, SHORT_S)
        self._left -= seconds
        self._sleep(seconds)

    def put(self, owner: Any, name: str, *, before: bool = True, after: bool = True) -> None:
        """Have a method of a class be late before its work, after it, or both."""
        original: Callable[..., Any] = getattr(owner, name)

        def delayed(*args: Any, **kwargs: Any) -> Any:
            if before:
                self.late()
            try:
                return original(*args, **kwargs)
            finally:
                if after:
                    self.late()

        setattr(owner, name, delayed)


def install(share: float) -> None:
    """Put delays where processes, threads and coroutines meet."""
    import asyncio.events
    import concurrent.futures
    import multiprocessing.connection
    import queue
    import subprocess
    import sys
    import threading

    sys.setswitchinterval(SWITCH_S)
    delays = Delays(share)
    delays.put(asyncio.events.Handle, "_run", after=False)
    delays.put(threading.Event, "set")
    delays.put(threading.Condition, "wait", before=False)
    delays.put(threading.Thread, "run", after=False)
    delays.put(concurrent.futures.Future, "set_result")
    delays.put(queue.Queue, "put")
    delays.put(queue.Queue, "get", before=False)
    delays.put(subprocess.Popen, "__init__", before=False)
    delays.put(multiprocessing.connection.Connection, "send_bytes")
    delays.put(multiprocessing.connection.Connection, "recv_bytes", before=False)


if os.environ.get(VARIABLE):
    install(float(os.environ[VARIABLE]))
