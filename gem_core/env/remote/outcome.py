"""The result of a call that is under way in a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Outcome(Generic[T]):
    """What a call returned or raised, once it is over.

    It does what a future of `concurrent.futures` does, for a third of the time: a lock is made only
    for who waits. It cannot be cancelled.
    """

    __slots__ = ("_callbacks", "_done", "_error", "_result")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Outcome[T]], object]] = []
        self._done = False
        self._error: BaseException | None = None
        self._result: T

    def done(self) -> bool:
        """Return whether the call is over."""
        return self._done

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the call is over, at most so many seconds; return whether it is."""
        if not self._done:
            over = threading.Event()
            self.add_done_callback(lambda _: over.set())
            over.wait(seconds)
        return self._done

    def result(self) -> T:
        """Wait until the call is over; return what it returned, or raise what it raised."""
        error = self.exception()
        if error is not None:
            raise error
        return self._result

    def exception(self) -> BaseException | None:
        """Wait until the call is over; return what it raised, ``None`` if it returned."""
        self.wait()
        return self._error

    def add_done_callback(self, callback: Callable[[Outcome[T]], object]) -> None:
        """Call ``callback`` with this when the call is over: in the pool's thread, or at once."""
        self._callbacks.append(callback)
        if self._done:
            self._call_back()

    def set_result(self, result: T) -> None:
        """End the call with what it returned."""
        self._result = result
        self._end()

    def set_exception(self, error: BaseException) -> None:
        """End the call with what it raised."""
        self._error = error
        self._end()

    def _end(self) -> None:
        if self._done:
            raise RuntimeError("The call is over already.")
        self._done = True
        self._call_back()

    def _call_back(self) -> None:
        """Call what is in the list, each once: another thread may be adding to it."""
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # the other thread took it
                return
            callback(self)
