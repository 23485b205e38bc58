"""Turns of the coroutines of one event loop, so that none of its iterations takes long.

An event loop runs everything that is ready in one iteration. Where hundreds of episodes begin, or
are answered, at the same time, that takes long, and whatever else lives in the loop (the requests
of an engine, a trainer's own coroutines) waits. Here the episodes queue, and each iteration lets
some of them work.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque

SLICE_S = 0.004
"""Seconds of work in one iteration of the event loop after which other episodes wait."""
_FIRST, _MOST = 4, 256


class Pace:
    """The queue of one event loop, see `pace`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._releasing = False  # the next iteration calls `_release_some`
        self._released_at: float | None = None
        self._most = _FIRST
        self._released = 0
        self._began: float | None = None  # when the first one worked in this iteration

    @property
    def busy(self) -> bool:
        """Whether coroutines wait for their turn."""
        return bool(self._waiting)

    async def turn(self) -> None:
        """Wait until the calling coroutine may work; at once while there is time for it."""
        if self._waiting or not self._has_time():
            waiter: asyncio.Future[None] = self.loop.create_future()
            self.release(waiter)
            await waiter

    def release(self, waiter: asyncio.Future[None]) -> None:
        """Set the result of a future in its turn; from any thread."""
        self._waiting.append(waiter)
        if self._releasing:
            return
        self._releasing = True
        try:
            self.loop.call_soon_threadsafe(self._release_some)
        except RuntimeError:
            if not self.loop.is_closed():  # nobody waits in a closed one
                raise

    def _has_time(self) -> bool:
        now = time.perf_counter()
        if self._began is None:
            self._began = now
            self.loop.call_soon(self._end_iteration)
        return now - self._began < SLICE_S

    def _end_iteration(self) -> None:
        self._began = None

    def _release_some(self) -> None:
        """Let some work in the next iteration, as many as the last time were good for a slice."""
        now = time.perf_counter()
        if self._released_at is not None:
            spent = now - self._released_at
            if spent > SLICE_S:
                self._most = max(1, self._most // 2)
            elif spent < SLICE_S / 2 and self._released == self._most:
                self._most = min(_MOST, 2 * self._most)
        self._released = 0
        while self._waiting and self._released < self._most:
            waiter = self._waiting.popleft()
            if not waiter.done():  # a deadline or a cancellation may have come first
                waiter.set_result(None)
                self._released += 1
        if self._released:
            self._released_at = now
            self.loop.call_soon(self._release_some)
            return
        self._released_at = None
        self._releasing = False
        if self._waiting:  # added by another thread in the meantime
            self._releasing = True
            self.loop.call_soon(self._release_some)


_local = threading.local()


def pace() -> Pace:
    """Return the queue of the running event loop."""
    loop = asyncio.get_running_loop()
    found: Pace | None = getattr(_local, "pace", None)
    if found is None or found.loop is not loop:
        found = Pace(loop)
        _local.pace = found
    return found
