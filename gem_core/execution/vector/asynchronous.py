"""`AsyncVectorEnv`: environments in threads or processes, none of which waits for another."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal, TypeAlias

from gem_core.env.remote.errors import RemoteError
from gem_core.env.remote.outcome import Outcome
from gem_core.execution.vector.env import (
    Autoreset,
    One,
    Ready,
    Seeds,
    Steps,
    VectorEnv,
    close_each,
    make_failed_step,
    stack,
    with_final,
)
from gem_core.execution.vector.slots import EnvSlot

_Doing: TypeAlias = Literal["step", "reset", "next"]
"""A step; a reset; the reset that ``same_step`` adds to a step."""


class _Arrivals:
    """Calls that are done. Who waits is woken once, when there are as many as it waits for."""

    def __init__(self) -> None:
        self._items: deque[tuple[int, Any]] = deque()
        self._enough = sys.maxsize
        self._wake = threading.Event()

    def put(self, item: tuple[int, Any]) -> None:
        """Add a call; from any thread."""
        self._items.append(item)
        if len(self._items) >= self._enough:
            self._wake.set()

    def take(self) -> Iterator[tuple[int, Any]]:
        """Take and yield what is there."""
        while self._items:
            yield self._items.popleft()

    def wait(self, count: int, seconds: float | None) -> bool:
        """Wait until there are ``count``; return whether there are."""
        self._wake.clear()
        self._enough = count
        if len(self._items) < count:
            self._wake.wait(seconds)
        self._enough = sys.maxsize
        return len(self._items) >= count


class AsyncVectorEnv(VectorEnv):
    """A vector whose environments are called at the same time.

    ``end`` is called when the vector is closed, after its environments. Inside of the context
    ``together`` many calls are submitted, which are sent at its end.
    """

    def __init__(
        self,
        slots: Sequence[EnvSlot],
        ids: Sequence[str],
        autoreset: Autoreset,
        end: Callable[[], None],
        together: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(ids, autoreset)
        self._slots = slots
        self._end = end
        self._together = together
        self._pending: dict[int, tuple[_Doing, Any]] = {}
        self._last: dict[int, One] = {}  # last steps of episodes whose environment is being reset
        self._arrivals = _Arrivals()

    def reset(
        self,
        *,
        seed: Seeds = None,
        options: dict[str, Any] | None = None,
        indices: Iterable[int] | None = None,
    ) -> tuple[list[str], list[dict[str, Any]]]:
        """See `VectorEnv.reset`."""
        chosen = self._choose(indices)
        self._require_received(self._pending if indices is None else chosen)
        seeds = self._seeds(seed, chosen)
        with self._together():
            for index, one in zip(chosen, seeds, strict=True):
                self._submit(index, "reset", "reset", seed=one, options=options)
        ready = dict(self._collect(chosen, len(chosen), None))
        return [ready[i][0] for i in chosen], [ready[i][4] for i in chosen]

    def step(self, actions: Sequence[str], indices: Iterable[int] | None = None) -> Steps:
        """See `VectorEnv.step`."""
        chosen = self._choose(indices)
        self._send(actions, chosen)
        ready = dict(self._collect(chosen, len(chosen), None))
        return stack([ready[index] for index in chosen])

    def send(self, actions: Sequence[str], indices: Iterable[int] | None = None) -> None:
        """See `VectorEnv.send`."""
        self._send(actions, self._choose(indices))

    def recv(self, *, min_ready: int = 1, timeout: float | None = None) -> Ready:
        """See `VectorEnv.recv`."""
        self._require_open()
        ready = self._collect(list(self._pending), min_ready, timeout)
        return Ready([index for index, _ in ready], stack([one for _, one in ready]))

    def close(self) -> None:
        """See `VectorEnv.close`."""
        if self.closed:
            return
        self.closed = True
        closing: list[Outcome[Any]] = []
        try:
            close_each([partial(_begin_close, slot, closing) for slot in self._slots])
            ends_at = time.monotonic() + 2.0
            close_each([partial(_wait_for_close, one, ends_at) for one in closing])
        finally:
            self._end()

    # -- one environment -------------------------------------------------------------------------

    def _send(self, actions: Sequence[str], chosen: Sequence[int]) -> None:
        self._require_received(chosen)
        checked = self._check_actions(actions, chosen)
        with self._together():
            for index, action in zip(chosen, checked, strict=True):
                if index in self._over:
                    self._submit(index, "reset", "reset")
                else:
                    self._submit(index, "step", "step", action)

    def _submit(
        self, index: int, doing: _Doing, method: str, *arguments: Any, **named: Any
    ) -> None:
        put = self._arrivals.put
        slot = self._slots[index]
        call = slot.submit(lambda done: put((index, done)), method, *arguments, **named)
        self._pending[index] = (doing, call)

    def _require_received(self, indices: Iterable[int]) -> None:
        waiting = [index for index in indices if index in self._pending]
        if waiting:
            raise self._not_received(waiting)

    def _take(self, index: int, call: Any) -> One | None:
        """Take what an environment answered; ``None``: its step is not over, or was given up."""
        doing, expected = self._pending.get(index, ("step", None))
        if call is not expected:
            return None
        del self._pending[index]
        try:
            result = self._slots[index].receive(call)
        except BaseException as error:
            return self._handle_end(index, make_failed_step(error), begins=doing != "step")
        if doing == "step":
            return self._handle_end(index, result)
        self._begun.add(index)
        self._over.discard(index)
        obs, info = result
        if doing == "next":
            return with_final(self._last.pop(index), obs, info)
        return obs, 0.0, False, False, info

    def _handle_end(self, index: int, result: One, *, begins: bool = False) -> One | None:
        """Note the end of an episode; begin the next one where that is asked for."""
        if not (result[2] or result[3]):
            return result
        self._over.add(index)
        if begins:  # a reset failed, which is not repeated at once
            self._begun.add(index)
            last = self._last.pop(index, None)
            return result if last is None else with_final(last, result[0], result[4])
        if self.autoreset != "same_step":
            return result
        self._last[index] = result
        self._submit(index, "next", "reset")
        return None

    # -- waiting ---------------------------------------------------------------------------------

    def _collect(
        self, chosen: Sequence[int], least: int, timeout: float | None
    ) -> list[tuple[int, One]]:
        """Return the steps of ``chosen`` that are done: ``least`` of them, or after the timeout."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        wanted = set(chosen)
        least = min(least, len(wanted))
        ready: list[tuple[int, One]] = []
        others: list[tuple[int, Any]] = []
        while True:
            for index, call in self._arrivals.take():
                if index not in wanted:
                    if self._pending.get(index, (None, None))[1] is call:
                        others.append((index, call))
                    continue
                result = self._take(index, call)
                if result is not None:
                    ready.append((index, result))
            if len(ready) >= least or (ends_at is not None and time.monotonic() >= ends_at):
                break
            self._wait(least - len(ready), ends_at)
        for other in others:
            self._arrivals.put(other)
        return ready

    def _wait(self, count: int, ends_at: float | None) -> None:
        """Wait until ``count`` calls are done, the time is over, or a call passes its deadline."""
        deadlines = [end for i in self._pending if (end := self._slots[i].ends_at()) is not None]
        if ends_at is not None:
            deadlines.append(ends_at)
        seconds = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
        if not self._arrivals.wait(count, seconds):
            self._give_up_late()

    def _give_up_late(self) -> None:
        for index, (doing, _) in list(self._pending.items()):
            failed = self._slots[index].late()
            if failed is not None:
                self._pending[index] = (doing, failed)
                self._arrivals.put((index, failed))


def _begin_close(slot: EnvSlot, closing: list[Outcome[Any]]) -> None:
    """Close an environment; where that is only begun, add what tells of its end."""
    future = slot.close()
    if future is not None:
        closing.append(future)


def _wait_for_close(future: Outcome[Any], ends_at: float) -> None:
    """Wait for the closing of an environment; what remains then ends with its process."""
    if future.wait(max(0.0, ends_at - time.monotonic())):
        error = future.exception()
        if isinstance(error, RemoteError):  # its own; the others tell that it is gone already
            raise error
