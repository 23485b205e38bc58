"""Where the environments of a vector live: each in a slot that makes one call at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from gem_core.env.blocking import never_blocks
from gem_core.env.interface import Env
from gem_core.env.remote.outcome import Outcome
from gem_core.env.spec import EnvSpec
from gem_core.execution.workers import Builder, EnvDeadlineError, WorkerEnv, WorkerPool
from gem_core.execution.workers.by_value import pack_definition

Done: TypeAlias = Callable[[Any], None]


class EnvSlot(Protocol):
    """One environment that is called without waiting for it."""

    def submit(self, done: Done, method: str, *arguments: Any, **named: Any) -> Any:
        """Begin a call and return it; ``done(call)`` follows, perhaps in another thread."""

    def receive(self, call: Any) -> Any:
        """Return the result of a call that is done; raise what it raised."""

    def late(self) -> Any | None:
        """Give up the call under way if it has passed its deadline; return it as a failed one."""

    def ends_at(self) -> float | None:
        """Return when `late` must be asked, in ``time.monotonic()``; ``None`` = never."""

    def close(self) -> Outcome[Any] | None:
        """Close the environment, or begin to."""


class ThreadCall:
    """One call in a thread.

    Attributes:
        started_at: ``time.monotonic()`` when it began; ``None`` while it waits for a thread.
        finished: whether it has returned.
        given_up: whether nobody waits for it any more.
    """

    __slots__ = ("done", "error", "finished", "function", "given_up", "result", "started_at")

    def __init__(self, function: Callable[[], Any], done: Done) -> None:
        self.function = function
        self.done = done
        self.started_at: float | None = None
        self.finished = False
        self.given_up = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Make the call, and tell that it is done."""
        self.started_at = time.monotonic()
        try:
            self.result = self.function()
        except BaseException as error:  # else its thread would end, and nobody would get an answer
            self.error = error
        self.finished = True
        self.done(self)


class Threads:
    """Daemon threads for calls that may block; one that hangs is replaced.

    Futures and locks, which `gem_core.episodes.env_threads` has, cost more than many steps.
    ``size`` calls run at the same time, at most.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._started = 0
        self._calls: SimpleQueue[ThreadCall | None] = SimpleQueue()

    def submit(self, call: ThreadCall) -> None:
        """Make a call as soon as a thread is free."""
        while self._started < self._size:
            self._start()
        self._calls.put(call)

    def give_up(self, call: ThreadCall) -> None:
        """Leave a call that has begun to its thread, which another one replaces."""
        call.given_up = True
        if call.started_at is not None:
            self._start()

    def _start(self) -> None:
        self._started += 1
        threading.Thread(target=self._serve, daemon=True, name="gem-vec").start()

    def close(self) -> None:
        """End the threads that have no call."""
        for _ in range(self._started):
            self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.given_up:
                continue
            call.run()
            if call.given_up:  # another thread has taken the place of this one
                return


class ThreadSlot:
    """An environment of this process; one that may block is called in a thread.

    One whose call passed its deadline (wall seconds) is given up with its thread, and made anew.
    """

    def __init__(self, make: Callable[[], Env], threads: Threads, deadline_s: float) -> None:
        self._make = make
        self._threads = threads
        self._deadline_s = deadline_s
        self._call: ThreadCall | None = None
        self._use(make())

    def _use(self, env: Env) -> None:
        self.env = env
        self._direct = never_blocks(env)

    def submit(self, done: Done, method: str, *arguments: Any, **named: Any) -> ThreadCall:
        """See `Slot.submit`."""
        call = ThreadCall(partial(getattr(self.env, method), *arguments, **named), done)
        self._call = call
        if self._direct:
            call.run()
        else:
            self._threads.submit(call)
        return call

    def receive(self, call: ThreadCall) -> Any:
        """See `Slot.receive`."""
        self._call = None
        if call.error is not None:
            raise call.error
        return call.result

    def late(self) -> ThreadCall | None:
        """See `Slot.late`."""
        end = self.ends_at()
        call = self._call
        if call is None or end is None or time.monotonic() < end:
            return None
        self._threads.give_up(call)
        self._use(self._make())
        failed = ThreadCall(call.function, call.done)
        failed.error = EnvDeadlineError(self._deadline_s)
        failed.finished = True
        self._call = failed
        return failed

    def ends_at(self) -> float | None:
        """See `Slot.ends_at`."""
        call = self._call
        if call is None or call.finished:
            return None
        began = time.monotonic() if call.started_at is None else call.started_at
        return began + self._deadline_s

    def close(self) -> None:
        """See `Slot.close`; an environment that is being called is left to its thread."""
        if self._call is None:
            self.env.close()
        else:
            self._threads.give_up(self._call)


class ProcessSlot:
    """An environment in a worker process, whose pool ends late calls itself."""

    def __init__(self, pool: WorkerPool, builder: bytes, deadline_s: float) -> None:
        self._env = WorkerEnv(pool, builder, deadline_s=deadline_s)

    def submit(self, done: Done, method: str, *arguments: Any, **named: Any) -> Outcome[Any]:
        """See `Slot.submit`."""
        future = self._env.submit(method, *arguments, **named)
        future.add_done_callback(done)
        return future

    def receive(self, call: Outcome[Any]) -> Any:
        """See `Slot.receive`."""
        return self._env.receive(call)

    def late(self) -> None:
        """See `Slot.late`."""

    def ends_at(self) -> None:
        """See `Slot.ends_at`."""

    def close(self) -> Outcome[Any]:
        """See `Slot.close`."""
        return self._env.submit("close")


def worker_builder(spec: EnvSpec, kwargs: dict[str, Any]) -> bytes:
    """Return how a worker makes an environment of a vector."""
    target = "gem_core.execution.vector.slots:make_in_worker"
    return Builder(target, (spec, kwargs), pack_definition(spec)).pack()


def make_in_worker(spec: EnvSpec, kwargs: dict[str, Any]) -> Env:
    """Make an environment in a worker; ids of the parent's own are there as specs."""
    from gem_core.env.registration import make

    return make(spec, **kwargs)
