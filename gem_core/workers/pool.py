"""The pool of worker processes in which environments live.

`WorkerPool.submit` returns a future at once; one thread moves the bytes of all workers, watches
deadlines, and starts and ends the processes. Each worker has many environments.

A worker that ends costs the episodes whose calls it was running; one in which a call passes its
deadline is ended and costs that episode only. The other environments of that worker continue in
another one: their calls so far are repeated there (``restart = "replay"``), which gives the same
state, because seed and actions decide an episode. With ``restart = "fail"`` they end, too.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal, TypeAlias

from gem_core.errors import GemError
from gem_core.workers.errors import (
    EnvDeadlineError,
    WorkerDiedError,
    WorkerPoolError,
    remote_error,
)
from gem_core.workers.records import START_S, Answer, Call, Handle, Worker

MAX_FAILED_STARTS = 3
"""Workers in a row that may end before they are ready."""
_GRACE_S = 2.0
_CHANGES = ("reset", "step", "set_state")
_LOSES_HISTORY = ("reset", "set_state")

Restart: TypeAlias = Literal["replay", "fail"]


class WorkerPool:
    """Worker processes for environments; see the module docstring.

    Args:
        number: processes; ``None``: the CPUs that this process may use, at most 8.
        restart: what becomes of the other environments of a worker that ended.
        max_restarts: workers that may be replaced before the run is stopped.

    Attributes:
        restarts: workers that were replaced.
    """

    def __init__(
        self,
        number: int | None = None,
        *,
        restart: Restart = "replay",
        max_restarts: int = 1000,
    ) -> None:
        self.number = number or default_number()
        self.restart = restart
        self.max_restarts = max_restarts
        self.restarts = 0
        self._failed_starts = 0
        self._lock = threading.RLock()
        self._workers: list[Worker] = []
        self._next_key = 0
        self._next_call = 0
        self._resolved: deque[Callable[[], None]] = deque()
        self._dropped: deque[Handle] = deque()
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True, name="gem-workers")
        self._thread.start()
        _pools.add(self)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def pids(self) -> list[int]:
        """The ids of the worker processes."""
        with self._lock:
            return [pid for worker in self._workers if (pid := worker.process.pid) is not None]

    def handle(self, builder: bytes, answer: Answer | None = None) -> Handle:
        """Return the handle of a new environment; its worker builds it at the first call.

        Args:
            builder: how it is made, see `Builder.pickled`.
            answer: called in the pool's thread with what the environment asks, see
                `gem_core.workers.child.ask`.
        """
        with self._lock:
            self._next_key += 1
            return Handle(builder, self._next_key, answer)

    def submit(
        self, handle: Handle, method: str, *arguments: Any, deadline_s: float, **named: Any
    ) -> Future[tuple[Any, dict[str, Any] | None]]:
        """Call a method of an environment in its worker.

        Args:
            handle: the environment; one call at a time.
            method: of the environment.
            *arguments: of the method.
            deadline_s: wall seconds that the call may take from when the worker begins it.
            **named: of the method.

        Returns:
            What the method returns, and after a reset what is known of the environment. The future
            raises `EnvDeadlineError`, `WorkerDiedError` (also after its worker ended, until it is
            reset), or a `RemoteError` with the environment's own exception.

        Raises:
            WorkerPoolError: the pool is closed, or too many workers had to be replaced.
        """
        call = Call(handle, method, arguments, named, deadline_s)
        with self._lock:
            self._require_usable()
            if method in _LOSES_HISTORY:
                handle.gone = None
            if handle.gone is not None:
                call.future.set_exception(WorkerDiedError(handle.gone))
                return call.future
            handle.call = call
            self._place(call)
        return call.future

    def close_env(self, handle: Handle, deadline_s: float) -> Future[Any]:
        """Close an environment; one that is not in a worker is closed already."""
        with self._lock:
            running = handle.call is not None
            handle.closed = True
            if self._closed or handle.worker is None or running:
                done: Future[Any] = Future()
                done.set_result((None, None))
                return done
            return self._submit_close(handle, deadline_s).future

    def drop(self, handle: Handle) -> None:
        """Close an environment that nobody refers to; may be called at any time, takes no lock."""
        self._dropped.append(handle)
        self._wake()

    def close(self) -> None:
        """End all workers; calls under way fail."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            workers = list(self._workers)
            for worker in workers:
                worker.process.send(("stop",))
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(_GRACE_S + 5.0)
        _pools.discard(self)

    # -- placing calls; the lock is held -------------------------------------------------------

    def _require_usable(self) -> None:
        if self._closed:
            raise WorkerPoolError("The pool of environment workers is closed: make a new one.")
        if self.restarts > self.max_restarts:
            raise WorkerPoolError(
                f"{self.restarts} environment workers had to be replaced: repair the environment "
                "that ends or blocks its process, or raise workers.max_restarts."
            )
        if self._failed_starts >= MAX_FAILED_STARTS:
            raise WorkerPoolError(
                f"{self._failed_starts} environment workers in a row ended before they were "
                "ready; their standard error has the reason."
            )

    def _place(self, call: Call) -> None:
        """Send a call to the worker of its environment, to the least busy one if it has none."""
        handle = call.handle
        fresh = handle.worker is None
        try:
            arguments = pickle.dumps((call.arguments, call.named), protocol=5)
        except Exception as error:
            self._fail(call, TypeError(f"the arguments of {call.method} cannot be sent: {error}"))
            return
        history = pickle.dumps(handle.history, protocol=5) if fresh and handle.history else b""
        builder = handle.builder if fresh else b""
        worker = handle.worker or self._choose()
        handle.worker = worker
        worker.handles[handle.key] = handle
        self._next_call += 1
        worker.calls[self._next_call] = call
        worker.process.send(
            ("call", self._next_call, handle.key, builder, history, call.method, arguments)
        )
        if worker.started_at is None or worker.process.has_unsent:
            self._wake()

    def _choose(self) -> Worker:
        if len(self._workers) < self.number:
            self._workers.append(Worker())
            return self._workers[-1]
        return min(self._workers, key=lambda worker: len(worker.handles))

    def _fail(self, call: Call, error: BaseException) -> None:
        call.handle.call = None
        self._resolved.append(lambda: _set_exception(call.future, error))
        self._wake()  # the thread passes it on

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_in.send(b"\0")

    # -- the thread ------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not self._closed:
                self._serve_once(self._selector.select(self._patience()))
        except BaseException as error:
            self._fail_all(WorkerPoolError(f"The pool of environment workers failed: {error!r}"))
            raise
        finally:
            self._end_all()

    def _serve_once(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        with self._lock:
            for key, _ in ready:
                if key.fileobj is self._wake_out:
                    _drain(self._wake_out)
                else:
                    self._receive(key.data)
            self._end_late()
            self._close_dropped()
            new = [worker for worker in self._workers if worker.started_at is None]
        for worker in new:  # takes a while: without the lock
            worker.process.start()
            worker.started_at = time.monotonic()
            self._selector.register(worker.process, selectors.EVENT_READ, worker)
        with self._lock:
            self._watch_unsent()
        self._resolve()

    def _patience(self) -> float | None:
        """Return the seconds until the first deadline."""
        with self._lock:
            ends = [end for worker in self._workers for end in worker.deadlines()]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _close_dropped(self) -> None:
        while self._dropped:
            handle = self._dropped.popleft()
            if not handle.closed and handle.worker is not None:
                handle.closed = True
                if handle.call is None:
                    self._submit_close(handle)

    def _watch_unsent(self) -> None:
        for worker in self._workers:
            if worker.started_at is None:
                continue  # it came while the others were started
            worker.process.flush()
            events = selectors.EVENT_READ
            if worker.process.has_unsent:
                events |= selectors.EVENT_WRITE
            if self._selector.get_key(worker.process).events != events:
                self._selector.modify(worker.process, events, worker)

    def _receive(self, worker: Worker) -> None:
        try:
            for message in worker.process.receive():
                self._take(worker, *message)
        except EOFError:
            suspects = [call for call in worker.calls.values() if call.ends_at is not None]
            how = self._end(worker, ended=True)
            for call in suspects:
                text = f"the worker process of the environment ended in {call.method}(): {how}"
                self._fail(call, WorkerDiedError(text))
            self._move(worker, suspects)

    def _take(self, worker: Worker, kind: str, *rest: Any) -> None:
        """Take one message of a worker."""
        if kind == "ready":
            worker.process.ready = True
            self._failed_starts = 0
            return
        call = worker.calls[rest[0]]
        if kind == "building":
            call.ends_at = time.monotonic() + max(START_S, call.seconds)
        elif kind == "started":
            call.ends_at = time.monotonic() + call.seconds
        elif kind == "ask":
            self._resolved.append(lambda: self._answer(worker, call, *rest))
        else:
            del worker.calls[rest[0]]
            self._finish(worker, call, kind, *rest[1:])

    def _answer(self, worker: Worker, call: Call, number: int, name: str, value: Any) -> None:
        """Answer what an environment asks; without the lock, for it may take long."""
        answer = call.handle.answer
        try:
            if answer is None:
                raise GemError(f"nothing answers {name!r}")
            reply = (True, answer(name, value))
        except Exception as error:
            reply = (False, f"{type(error).__name__}: {error}")
        with self._lock:
            if number in worker.calls:
                worker.process.send(("answer", number, *reply))

    def _finish(self, worker: Worker, call: Call, kind: str, *rest: Any) -> None:
        """Record the answer to a call and pass it on."""
        handle = call.handle
        handle.call = None
        if call.method in _LOSES_HISTORY:
            handle.history = []
        if call.method in _CHANGES:
            handle.history.append((call.method, call.arguments, call.named))
        never_built = kind == "failed" and not rest[1]
        if call.method == "close" or never_built:
            worker.handles.pop(handle.key, None)
            handle.worker = None
        elif handle.closed:  # given up while it was called
            self._submit_close(handle)
        if kind == "failed":
            self._resolved.append(lambda: _set_exception(call.future, remote_error(rest[0])))
        else:
            self._resolved.append(lambda: _set_result(call.future, rest[0], rest[1]))

    def _submit_close(self, handle: Handle, deadline_s: float = START_S) -> Call:
        handle.call = Call(handle, "close", (), {}, deadline_s)
        self._place(handle.call)
        return handle.call

    def _end_late(self) -> None:
        """End the workers that have calls past their deadline."""
        now = time.monotonic()
        for worker in list(self._workers):
            if min(worker.deadlines(), default=now + 1.0) > now:
                continue
            late = [c for c in worker.calls.values() if c.ends_at is not None and c.ends_at <= now]
            self._end(worker)
            for call in late:
                self._fail(call, EnvDeadlineError(call.seconds))
            self._move(worker, late)

    def _end(self, worker: Worker, *, ended: bool = False) -> str:
        """Take a worker out of the pool; return how it ended."""
        if worker.started_at is not None:
            self._selector.unregister(worker.process)
        self._workers.remove(worker)
        self.restarts += not self._closed
        self._failed_starts += not worker.process.ready
        return worker.process.kill(ended=ended)

    def _move(self, worker: Worker, lost: list[Call]) -> None:
        """Let the environments of a worker that ended continue in others."""
        for call in lost:
            del worker.handles[call.handle.key]
            _lose(call.handle, "the environment's worker process ended during its last call")
        waiting = {call.handle.key: call for call in worker.calls.values() if call not in lost}
        for key, handle in worker.handles.items():
            handle.worker = None
            call_waiting = waiting.get(key)
            if handle.closed:
                handle.call = None
                if call_waiting is not None:
                    self._resolved.append(_closed(call_waiting))
            elif self.restart == "fail" and handle.history:
                _lose(handle, "the environment's worker process ended during another one's call")
                if call_waiting is not None:
                    self._fail(call_waiting, WorkerDiedError(str(handle.gone)))
            elif call_waiting is not None:
                self._replace_call(call_waiting)

    def _replace_call(self, call: Call) -> None:
        try:
            self._require_usable()
        except WorkerPoolError as error:
            self._fail(call, error)
        else:
            self._place(call)

    def _resolve(self) -> None:
        """Set the results of futures, whose callbacks may take other locks, without the lock."""
        while True:
            try:
                resolve = self._resolved.popleft()
            except IndexError:
                return
            resolve()

    def _fail_all(self, error: GemError) -> None:
        with self._lock:
            self._closed = True
            for worker in self._workers:
                for call in worker.calls.values():
                    self._fail(call, error)
                worker.calls.clear()

    def _end_all(self) -> None:
        """Give the workers a moment to close their environments, then end them."""
        self._fail_all(WorkerPoolError("The pool of environment workers was closed."))
        self._resolve()
        ends_at = time.monotonic() + _GRACE_S
        for worker in self._workers:
            while worker.started_at is not None and time.monotonic() < ends_at:
                try:
                    worker.process.flush()
                    for _ in worker.process.receive():
                        pass
                except EOFError:
                    break
                time.sleep(0.002)
            worker.process.kill()
        self._workers.clear()
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    def _forget(self) -> None:
        """Forget the workers in a forked child: they are its parent's."""
        for worker in self._workers:
            worker.process.forget()
        self._workers = []
        self._closed = True


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def default_number() -> int:
    """Return the number of workers of a process where the recipe has none."""
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


def _set_result(
    future: Future[tuple[Any, dict[str, Any] | None]], facts: Any, result: bytes
) -> None:
    try:
        value = pickle.loads(result)
    except Exception as error:
        text = f"what the environment returned cannot be read here: {type(error).__name__}: {error}"
        _set_exception(future, TypeError(text))
        return
    if future.set_running_or_notify_cancel():
        future.set_result((value, facts))


def _set_exception(future: Future[Any], error: BaseException) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)


def _closed(call: Call) -> Callable[[], None]:
    return lambda: _set_result(call.future, None, pickle.dumps(None))


def _drain(connection: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while connection.recv(4096):
            pass


def _lose(handle: Handle, why: str) -> None:
    handle.worker = None
    handle.history = []
    handle.gone = why


def _forget_pools() -> None:
    for pool in list(_pools):
        pool._forget()
    _pools.clear()


@atexit.register
def close_pools() -> None:
    """End the workers of this process."""
    for pool in list(_pools):
        pool.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)
