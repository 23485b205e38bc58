"""The pool of threads in which environments that may block are called.

One pool serves a whole process. At most `EnvThreads.size` calls run at the same time; the others
wait, and the time limit of a call begins when it starts. A thread whose call has passed its limit
is given up: Python cannot end it, so it is counted (`EnvThreads.hung`), another thread replaces
it, and it ends if its call returns later. All threads are daemons: a hung environment does not
keep the process alive.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

from gem_core.errors import GemError

T = TypeVar("T")
MAX_ENV_THREADS = 128
"""Environment calls of one process that run at the same time."""
MAX_HUNG_THREADS = 1000
"""Hung calls of one process that are tolerated before the run is stopped."""


class ThreadedCall(Generic[T]):
    """One call of an environment, waiting, running or done.

    Attributes:
        future: its result.
        limit_s: wall seconds that it may run.
        started_at: ``time.monotonic()`` when it started, ``None`` while it waits for a thread.
    """

    __slots__ = ("abandoned", "finished", "function", "future", "limit_s", "started_at")

    def __init__(self, function: Callable[[], T], limit_s: float) -> None:
        self.function = function
        self.limit_s = limit_s
        self.future: Future[T] = Future()
        self.started_at: float | None = None
        self.abandoned = False
        self.finished = False

    def left(self) -> float:
        """Return the seconds that it may still run; its whole limit while it waits."""
        if self.started_at is None:
            return self.limit_s
        return self.started_at + self.limit_s - time.monotonic()

    def run(self) -> Callable[[], None]:
        """Run the function; return the callable that passes its result or error to the future."""
        try:
            result = self.function()
        except BaseException as error:
            return partial(self.future.set_exception, error)
        return partial(self.future.set_result, result)


class EnvThreads:
    """A bounded pool of daemon threads; see the module docstring.

    Attributes:
        size: largest number of calls that run at the same time.
        hung: threads given up whose call has not returned.
    """

    def __init__(self, size: int = MAX_ENV_THREADS) -> None:
        self.size = size
        self.hung = 0
        self._lock = threading.Lock()
        self._queue: SimpleQueue[ThreadedCall[object]] = SimpleQueue()
        self._unfinished = 0  # calls that wait or run, without those given up
        self._serving = 0  # threads that take calls from the queue
        self._running: set[ThreadedCall[object]] = set()

    def submit(self, function: Callable[[], T], limit_s: float) -> ThreadedCall[T]:
        """Run ``function`` in a thread as soon as one is free.

        Raises:
            GemError: too many environments hang.
        """
        self.give_up_late()
        if self.hung >= MAX_HUNG_THREADS:
            raise GemError(
                f"{self.hung} calls of environments hang in this process: repair the environment "
                "that does not return, or give its own network and subprocess calls a timeout."
            )
        call = ThreadedCall(function, limit_s)
        with self._lock:
            self._unfinished += 1
        self._queue.put(call)  # type: ignore[arg-type]
        self._add_thread()
        return call

    def abandon(self, call: ThreadedCall[T]) -> None:
        """Give up ``call``: its result is no longer needed."""
        with self._lock:
            if call.abandoned or call.finished:
                return
            call.abandoned = True
            self._unfinished -= 1
            if call.started_at is not None:
                self._running.discard(call)
                self._serving -= 1
                self.hung += 1
        self._add_thread()

    def give_up_late(self) -> None:
        """Give up the running calls that have passed their limit; costs nothing while few run."""
        if self._serving < self.size:
            return
        with self._lock:
            late = [call for call in self._running if call.left() < 0]
        for call in late:
            self.abandon(call)

    def _add_thread(self) -> None:
        with self._lock:
            if self._serving >= min(self.size, self._unfinished):
                return
            self._serving += 1
        threading.Thread(target=self._serve, daemon=True, name="gem-env").start()

    def _serve(self) -> None:
        while self._serve_one(self._queue.get()):
            pass

    def _serve_one(self, call: ThreadedCall[object]) -> bool:
        """Run ``call``; return whether this thread still belongs to the pool."""
        with self._lock:
            if call.abandoned:  # while it waited
                return True
            call.started_at = time.monotonic()
            self._running.add(call)
        give_result = call.run()
        with self._lock:  # before the result is set: its receiver may submit the next call at once
            call.finished = True
            if call.abandoned:
                self.hung -= 1
            else:
                self._running.discard(call)
                self._unfinished -= 1
        give_result()
        return not call.abandoned


_pool: EnvThreads | None = None
_pool_lock = threading.Lock()


def env_threads() -> EnvThreads:
    """Return the pool of this process; a forked child gets one of its own."""
    global _pool
    if _pool is None:
        with _pool_lock:
            if _pool is None:
                _pool = EnvThreads()
    return _pool


def _forget_pool() -> None:
    global _pool, _pool_lock
    _pool = None
    _pool_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
