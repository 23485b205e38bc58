"""The thread of a pool: it moves the bytes of all workers, watches deadlines, starts processes."""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import threading
import time
from collections.abc import Callable

from gem_core.env.remote.errors import WorkerPoolError
from gem_core.execution.workers.channel import Channel
from gem_core.execution.workers.fleet import Fleet, Restart
from gem_core.execution.workers.process import Process
from gem_core.execution.workers.records import Handle, Worker

GRACE_S = 2.0
"""Seconds that the workers have to close their environments when the pool is closed."""


class Service:
    """A fleet of workers (see `Fleet`) and the thread that serves it.

    Attributes:
        lock: must be held for every use of the fleet.
        fleet: the workers.
    """

    def __init__(
        self,
        number: int,
        restart: Restart,
        max_restarts: int,
        new_process: Callable[[], Channel] = Process,
    ) -> None:
        self.lock = threading.RLock()
        self.fleet = Fleet(number, restart, max_restarts, self.lock, self.wake, new_process)
        self._dropped: list[Handle] = []
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True, name="gem-workers")
        self._thread.start()

    def wake(self) -> None:
        """Let the thread look at what has changed; may be called at any time, takes no lock."""
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_in.send(b"\0")

    def drop(self, handle: Handle) -> None:
        """Close an environment that nobody refers to; may be called at any time, takes no lock."""
        self._dropped.append(handle)
        self.wake()

    def close(self) -> None:
        """End all workers; calls under way fail."""
        with self.lock:
            self.fleet.closed = True
            for worker in self.fleet.workers:
                worker.process.send(("stop",))
        self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(GRACE_S + 5.0)

    def _serve(self) -> None:
        try:
            while not self.fleet.closed:
                self._serve_once(self._selector.select(self._patience()))
        except BaseException as error:
            with self.lock:
                text = f"The pool of environment workers failed: {error!r}"
                self.fleet.fail_all(WorkerPoolError(text))
            raise
        finally:
            self._end_all()

    def _patience(self) -> float | None:
        """Return the seconds until the first deadline."""
        with self.lock:
            look_at = self.fleet.look_at
        return None if look_at == math.inf else max(0.0, look_at - time.monotonic())

    def _serve_once(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        with self.lock, self.fleet.together():
            for key, _ in ready:
                if key.fileobj is self._wake_out:
                    _drain(self._wake_out)
                else:
                    self._receive(key.data)
            for worker, late in self.fleet.late():
                self._end(worker)
                self.fleet.replace_late(worker, late)
            self._close_dropped()
            self.fleet.place_waiting()
            new = [worker for worker in self.fleet.workers if worker.started_at is None]
        for worker in new:  # takes a while: without the lock
            worker.process.start()
            worker.started_at = time.monotonic()
            self._selector.register(worker.process, selectors.EVENT_READ, worker)
        with self.lock:
            self._watch_unsent()
        self._resolve()

    def _receive(self, worker: Worker) -> None:
        try:
            place = worker.process.fileno()
            for message in worker.process.receive():
                self.fleet.take(worker, *message)
            if worker.process.fileno() != place:  # it is connected now
                self._selector.unregister(place)
                self._selector.register(worker.process, selectors.EVENT_READ, worker)
        except EOFError:
            worker.look()
            how = self._end(worker, ended=True)
            self.fleet.replace_dead(worker, how)

    def _end(self, worker: Worker, *, ended: bool = False) -> str:
        """Take a worker out of the pool; return how it ended."""
        if worker.started_at is not None:
            self._selector.unregister(worker.process)
        self.fleet.remove(worker)
        return worker.process.kill(ended=ended)

    def _close_dropped(self) -> None:
        while self._dropped:
            handle = self._dropped.pop()
            if not handle.closed:
                handle.closed = True
                if handle.call is None and handle.worker is not None:
                    self.fleet.close_env(handle)

    def _watch_unsent(self) -> None:
        for worker in self.fleet.workers:
            if worker.started_at is None:
                continue  # it came while the others were started
            worker.process.flush()
            events = selectors.EVENT_READ
            if worker.process.wants_to_write:
                events |= selectors.EVENT_WRITE
            if self._selector.get_key(worker.process).events != events:
                self._selector.modify(worker.process, events, worker)

    def _resolve(self) -> None:
        """Set the results of futures, whose callbacks may take other locks, without the lock."""
        resolved = self.fleet.resolved
        while resolved:
            resolved.popleft()()

    def _end_all(self) -> None:
        """Give the workers a moment to close their environments, then end them."""
        with self.lock:
            text = "The pool of environment workers was closed."
            self.fleet.fail_all(WorkerPoolError(text))
        self._resolve()
        ends_at = time.monotonic() + GRACE_S
        for worker in self.fleet.workers:
            while worker.started_at is not None and time.monotonic() < ends_at:
                try:
                    worker.process.flush()
                    for _ in worker.process.receive():
                        pass
                except EOFError:
                    break
                time.sleep(0.002)
            worker.process.kill()
        self.fleet.workers.clear()
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    def forget(self) -> None:
        """Forget the workers in a forked child: they are its parent's."""
        for worker in self.fleet.workers:
            worker.process.forget()
        self.fleet.workers = []
        self.fleet.closed = True


def _drain(connection: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while connection.recv(4096):
            pass
