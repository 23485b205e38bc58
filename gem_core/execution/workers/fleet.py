"""Which environment lives in which worker: placing calls, taking replies, replacing workers.

Nothing here waits or starts a process; `gem_core.execution.workers.service` does. Every method
needs the lock of the pool. What calls the code of others is left in `Fleet.resolved`, for it may
take other locks.
"""

from __future__ import annotations

import math
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, TypeAlias

from gem_core.env.remote.errors import (
    EnvDeadlineError,
    WorkerDiedError,
    WorkerPoolError,
    remote_error,
)
from gem_core.errors import GemError, error_line
from gem_core.execution.workers.channel import Channel
from gem_core.execution.workers.futures import with_error, with_result, without_result
from gem_core.execution.workers.process import Process
from gem_core.execution.workers.records import START_S, BuilderRecord, Handle, Worker, WorkerCall

MAX_FAILED_STARTS = 3
"""Workers in a row that may end before they are ready."""
QUEUED_S = 0.02
"""Expected seconds of first calls beyond which a worker gets no further environment for now."""
_CHANGES = ("reset", "step", "set_state")
LOSES_HISTORY = ("reset", "set_state")
_NOTHING = pickle.dumps(((), {}), protocol=5)

Restart: TypeAlias = Literal["replay", "fail"]


class Fleet:
    """The workers of a pool.

    Args:
        number: of workers.
        restart: what becomes of the other environments of a worker that ended.
        max_restarts: workers that may be replaced before the run is stopped.
        lock: of the pool.
        wake: makes the pool's thread look at once; takes no lock.
        new_process: makes a worker's process, which is not started yet.

    Attributes:
        workers: those that are there, started or not.
        restarts: workers that were replaced.
        resolved: what the pool's thread must call without the lock.
        look_at: when a deadline may pass, in ``time.monotonic()``.
    """

    def __init__(
        self,
        number: int,
        restart: Restart,
        max_restarts: int,
        lock: AbstractContextManager[Any],
        wake: Callable[[], None],
        new_process: Callable[[], Channel] = Process,
    ) -> None:
        self.number = number
        self.restart = restart
        self.max_restarts = max_restarts
        self.restarts = 0
        self.closed = False
        self.workers: list[Worker] = []
        self.resolved: deque[Callable[[], None]] = deque()
        self.look_at = math.inf
        self._lock = lock
        self._wake = wake
        self._new_process = new_process
        self._failed_starts = 0
        self._last_end = ""
        self._next_call = 0
        self._kinds: dict[bytes, BuilderRecord] = {}
        self._waiting: deque[WorkerCall] = deque()  # first calls, until a worker has time for them
        self._held = 0
        self._unsent: set[Worker] = set()

    def require_usable(self) -> None:
        """Raise `WorkerPoolError` if the pool cannot be used any more."""
        if self.closed:
            raise WorkerPoolError("The pool of environment workers is closed: make a new one.")
        if self.restarts > self.max_restarts:
            raise WorkerPoolError(
                f"{self.restarts} environment workers had to be replaced: repair the environment "
                "that ends or blocks its process, or raise workers.max_restarts."
            )
        if self._failed_starts >= MAX_FAILED_STARTS:
            raise WorkerPoolError(
                f"{self._failed_starts} environment workers in a row ended before they were "
                f"ready, the last one so: {self._last_end}; their standard error has the reason."
            )

    # -- to the workers --------------------------------------------------------------------------

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send what is placed inside in one write to each worker, at the end."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            if not self._held:
                for worker in self._unsent:
                    self._flush(worker)
                self._unsent.clear()

    def place(self, call: WorkerCall, *, first: bool = False) -> None:
        """Give a call to the worker of its environment.

        An environment without one gets the worker with the fewest environments that has time for
        it, or waits for one: a call in the queue of a worker cannot go to another one. ``first``
        lets it wait before those that wait already.
        """
        worker = call.handle.worker or self._choose(call)
        if worker is not None:
            self._give(worker, call)
        elif first:
            self._waiting.appendleft(call)
        else:
            self._waiting.append(call)

    def place_waiting(self) -> None:
        """Give the calls that wait to workers that have time for them now."""
        while self._waiting:
            call = self._waiting.popleft()
            if call.handle.closed:  # given up while it waited
                call.handle.call = None
                self.resolved.append(without_result(call))
                continue
            waiting = len(self._waiting)
            self._place_again(call)
            if len(self._waiting) > waiting:
                return

    def _choose(self, call: WorkerCall) -> Worker | None:
        if len(self.workers) < self.number:
            self.workers.append(Worker(self._new_process()))
            return self.workers[-1]
        kind = self._kinds.get(call.handle.builder)
        free = self.workers
        if kind is not None and not kind.blocks:
            # One call always waits in the worker, which would be idle until the next one comes.
            free = [w for w in free if w.expected_s < QUEUED_S or len(w.calls) < 2]
        return min(free, key=lambda worker: len(worker.handles), default=None)

    def _give(self, worker: Worker, call: WorkerCall) -> None:
        handle = call.handle
        fresh = handle.worker is None
        if fresh:
            kind = self._kinds.get(handle.builder)
            call.expected_s = 0.0 if kind is None or kind.blocks else kind.first_s
            worker.expected_s += call.expected_s
        history = pickle.dumps(handle.history, protocol=5) if fresh and handle.history else b""
        builder = handle.builder if fresh else b""
        handle.worker = worker
        worker.handles[handle.key] = handle
        self._next_call += 1
        worker.calls[self._next_call] = call
        call.given_at = time.monotonic()
        call.ends_at = None
        self._send(
            worker,
            ("call", self._next_call, handle.key, builder, history, call.method, call.arguments),
        )
        self._look_by(call.given_at + call.seconds)

    def _look_by(self, when: float) -> None:
        if when < self.look_at:
            self.look_at = when
            self._wake()

    def _send(self, worker: Worker, message: tuple[Any, ...]) -> None:
        worker.process.send(message)
        if self._held:
            self._unsent.add(worker)
        else:
            self._flush(worker)

    def _flush(self, worker: Worker) -> None:
        if worker.started_at is not None:
            worker.process.flush()
        if worker.started_at is None or worker.process.has_unsent:
            self._wake()

    def close_env(self, handle: Handle, deadline_s: float = START_S) -> WorkerCall:
        """Close an environment that a worker has."""
        handle.call = WorkerCall(handle, "close", _NOTHING, deadline_s)
        self.place(handle.call)
        return handle.call

    # -- from the workers ------------------------------------------------------------------------

    def take(self, worker: Worker, kind: str, *rest: Any) -> None:
        """Take one message of a worker."""
        if kind == "ready":
            worker.process.ready = True
            self._failed_starts = 0
            return
        call = worker.calls[rest[0]]
        if kind in ("building", "started"):
            call.begin(time.monotonic(), builds=kind == "building")
            if call.ends_at is not None:
                self._look_by(call.ends_at)
        elif kind == "ask":
            number, name, value = rest
            self.resolved.append(lambda: self._answer(worker, call, number, name, value))
        else:
            del worker.calls[rest[0]]
            self._finish(worker, call, kind, *rest[1:])

    def _answer(
        self, worker: Worker, call: WorkerCall, number: int, name: str, value: bytes
    ) -> None:
        """Answer what an environment asks; called without the lock, for it may take long."""
        answer = call.handle.answer
        reply: tuple[bool, bytes | str]
        try:
            if answer is None:
                raise GemError(f"nothing answers {name!r}")
            reply = (True, pickle.dumps(answer(name, pickle.loads(value)), protocol=5))
        except BaseException as error:  # in the thread of the pool, which all environments need
            reply = (False, error_line(error))
        with self._lock:
            if number in worker.calls:
                self._send(worker, ("answer", number, *reply))

    def _finish(self, worker: Worker, call: WorkerCall, kind: str, *rest: Any) -> None:
        """Record the answer to a call and pass it on."""
        handle = call.handle
        handle.call = None
        worker.expected_s -= call.expected_s
        if call.method in LOSES_HISTORY:
            handle.history = []
        if call.method in _CHANGES:
            handle.history.append((call.method, call.arguments))
        never_built = kind == "failed" and not rest[1]
        if call.method == "close" or never_built:
            worker.handles.pop(handle.key, None)
            handle.worker = None
        elif handle.closed:  # given up while it was called
            self.close_env(handle)
        if kind == "failed":
            self.resolved.append(with_error(call, remote_error(rest[0])))
            return
        facts, result, blocks, seconds = rest
        if facts is not None:
            self._learn(handle.builder, blocks, seconds)
        self.resolved.append(with_result(call, facts, result))

    def _learn(self, builder: bytes, blocks: bool, seconds: float) -> None:
        """Note what the first call of an environment tells of its kind."""
        kind = self._kinds.get(builder)
        if kind is None:
            self._kinds[builder] = BuilderRecord(blocks, seconds)
        else:
            kind.blocks = blocks
            kind.note_time(seconds)

    def fail(self, call: WorkerCall, error: BaseException) -> None:
        """Let a call raise an error."""
        call.handle.call = None
        self.resolved.append(with_error(call, error))
        self._wake()

    def fail_all(self, error: GemError) -> None:
        """Let all calls raise an error, and take no more."""
        self.closed = True
        for worker in self.workers:
            for call in worker.calls.values():
                self.fail(call, error)
            worker.calls.clear()
        for call in self._waiting:
            self.fail(call, error)
        self._waiting.clear()

    # -- workers that end ------------------------------------------------------------------------

    def late(self) -> list[tuple[Worker, list[WorkerCall]]]:
        """Return the workers that have calls past their deadline, with these calls."""
        now = time.monotonic()
        if now < self.look_at:
            return []
        found: list[tuple[Worker, list[WorkerCall]]] = []
        for worker in self.workers:
            worker.look()
            late = [c for c in worker.calls.values() if c.ends_at is not None and c.ends_at <= now]
            if late or worker.starts_too_long(now):
                found.append((worker, late))
        ended = [worker for worker, _ in found]
        looks = (t for w in self.workers if w not in ended for t in w.next_looks(now))
        self.look_at = min(looks, default=math.inf)
        return found

    def replace_late(self, worker: Worker, late: list[WorkerCall]) -> None:
        """Let the late calls of a worker that was ended fail, and its others continue."""
        self._last_end = "a call was late, and it was ended"
        for call in late:
            self.fail(call, EnvDeadlineError(call.seconds))
        self._move(worker, late)

    def replace_dead(self, worker: Worker, how: str) -> None:
        """Let the calls under way of a worker that ended by itself fail, and its others continue.

        The worker's calls were looked at (`Worker.look`); ``how`` it ended is for messages.
        """
        self._last_end = how
        suspects = [call for call in worker.calls.values() if call.ends_at is not None]
        for call in suspects:
            text = f"the worker process of the environment ended in {call.method}(): {how}"
            self.fail(call, WorkerDiedError(text))
        self._move(worker, suspects)

    def remove(self, worker: Worker) -> None:
        """Take a worker out that ends."""
        self.workers.remove(worker)
        self._unsent.discard(worker)
        self.restarts += not self.closed
        self._failed_starts += not worker.process.ready

    def _move(self, worker: Worker, lost: list[WorkerCall]) -> None:
        """Let the environments of a worker that ended continue in others."""
        for call in lost:
            del worker.handles[call.handle.key]
            call.handle.lose("the environment's worker process ended during its last call")
        waiting = {call.handle.key: call for call in worker.calls.values() if call not in lost}
        for key, handle in worker.handles.items():
            handle.worker = None
            call_waiting = waiting.get(key)
            if handle.closed:
                handle.call = None
                if call_waiting is not None:
                    self.resolved.append(without_result(call_waiting))
            elif self.restart == "fail" and handle.history:
                handle.lose("the environment's worker process ended during another one's call")
                if call_waiting is not None:
                    self.fail(call_waiting, WorkerDiedError(str(handle.gone)))
            elif call_waiting is not None:
                self._place_again(call_waiting)

    def _place_again(self, call: WorkerCall) -> None:
        try:
            self.require_usable()
        except WorkerPoolError as error:
            self.fail(call, error)
        else:
            self.place(call, first=True)
