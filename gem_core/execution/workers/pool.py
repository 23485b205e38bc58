"""The pool of worker processes in which environments live.

`WorkerPool.submit` returns at once; one thread (`gem_core.execution.workers.service`) moves the
bytes of all workers, watches deadlines, and starts and ends the processes. Each worker has many
environments (`gem_core.execution.workers.fleet`).

A worker that ends costs the episodes whose calls it was running; one in which a call passes its
deadline is ended and costs that episode only. The other environments of that worker continue in
another one: their calls so far are repeated there (``restart = "replay"``), which gives the same
state, because seed and actions decide an episode. With ``restart = "fail"`` they end, too.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from gem_core.env.remote.errors import WorkerDiedError
from gem_core.env.remote.outcome import Outcome
from gem_core.execution.workers.by_value import pack_by_value
from gem_core.execution.workers.channel import Channel
from gem_core.execution.workers.fleet import LOSES_HISTORY, Restart
from gem_core.execution.workers.open_pools import OpenPools
from gem_core.execution.workers.process import Process
from gem_core.execution.workers.records import Answer, Handle, WorkerCall
from gem_core.execution.workers.service import Service


class WorkerPool:
    """Worker processes for environments; see the module docstring.

    Args:
        number: processes; ``None``: the CPUs that this process may use, at most 8.
        restart: what becomes of the other environments of a worker that ended.
        max_restarts: workers that may be replaced before the run is stopped.
        new_process: makes a worker's process, which is not started yet; ``None``: one of this
            machine. `gem_core.execution.workers.ray_process.RayProcess` is one of a Ray cluster.
    """

    def __init__(
        self,
        number: int | None = None,
        *,
        restart: Restart = "replay",
        max_restarts: int = 1000,
        new_process: Callable[[], Channel] | None = None,
    ) -> None:
        self.number = number or default_number()
        self._next_key = 0
        self._service = Service(self.number, restart, max_restarts, new_process or Process)
        self._fleet = self._service.fleet
        self._lock = self._service.lock
        _pools.add(self)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._fleet.closed

    @property
    def restarts(self) -> int:
        """Workers that were replaced."""
        return self._fleet.restarts

    @property
    def pids(self) -> list[int]:
        """The ids of the worker processes."""
        with self._lock:
            ids = [worker.process.pid for worker in self._fleet.workers]
        return [pid for pid in ids if pid is not None]

    def handle(self, builder: bytes, answer: Answer | None = None) -> Handle:
        """Return the handle of a new environment; its worker builds it at the first call.

        ``answer`` is called in the pool's thread with what the environment asks, see
        `gem_core.execution.workers.child.ask`.
        """
        with self._lock:
            self._next_key += 1
            return Handle(builder, self._next_key, answer)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Send the calls that are submitted inside at its end, in one write to each worker.

        It is for submitting only: the pool does nothing else until its end.
        """
        with self._lock, self._fleet.together():
            yield

    def submit(
        self, handle: Handle, method: str, *arguments: Any, deadline_s: float, **named: Any
    ) -> Outcome[tuple[Any, dict[str, Any] | None]]:
        """Call a method of an environment in its worker.

        Args:
            handle: the environment; one call at a time.
            method: of the environment.
            *arguments: of the method.
            deadline_s: wall seconds that the call may take from when the worker begins it.
            **named: of the method.

        Returns:
            What the method returns, and after a reset what is known of the environment where that
            has changed. It raises `EnvDeadlineError`, `WorkerDiedError` (also after its
            worker ended, until it is reset), or a `RemoteError` with the environment's own
            exception.

        Raises:
            WorkerPoolError: the pool is closed, or too many workers had to be replaced.
        """
        packed, error = _pack(method, arguments, named)
        call = WorkerCall(handle, method, packed, deadline_s)
        with self._lock:
            self._fleet.require_usable()
            if method in LOSES_HISTORY:
                handle.gone = None
            if handle.gone is not None:
                call.future.set_exception(WorkerDiedError(handle.gone))
            elif error is not None:
                self._fleet.fail(call, error)
            else:
                handle.call = call
                self._fleet.place(call)
        return call.future

    def close_env(self, handle: Handle, deadline_s: float) -> Outcome[Any]:
        """Close an environment; one that is not in a worker is closed already."""
        with self._lock:
            running = handle.call is not None
            handle.closed = True
            if self.closed or handle.worker is None or running:
                done: Outcome[Any] = Outcome()
                done.set_result((None, None))
                return done
            return self._fleet.close_env(handle, deadline_s).future

    def drop(self, handle: Handle) -> None:
        """Close an environment that nobody refers to; may be called at any time, takes no lock."""
        self._service.drop(handle)

    def close(self) -> None:
        """End all workers; calls under way fail."""
        if not self.closed:
            self._service.close()
        _pools.discard(self)

    def forget(self) -> None:
        """Leave the workers to the parent; called in a forked child."""
        self._service.forget()


_pools: OpenPools[WorkerPool] = OpenPools()


def default_number() -> int:
    """Return the number of workers of a process where the recipe has none."""
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


def _pack(
    method: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[bytes, TypeError | None]:
    """Return the pickle of a call's arguments, or why there is none."""
    try:
        if method == "step":  # its action is text, and `pickle` takes a tenth of the time
            return pickle.dumps((arguments, named), protocol=5), None
        return pack_by_value((arguments, named)), None
    except Exception as error:
        return b"", TypeError(f"the arguments of {method} cannot be sent: {error}")
