"""Worker processes that run one function with a deadline, shared by all environments.

The worker of a job that exceeds its deadline is killed and replaced, so that the next job is not
late. Calls may come from any thread; nothing here uses signals in the calling process. Jobs and
results are JSON, so that a worker that an answer has compromised cannot make its parent run code.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from typing import Any

from gem_core.errors import GemError

_HEADER = 8
_START_S = 120.0
_MAX_REPLY = 64 << 20


class WorkerError(GemError, RuntimeError):
    """A job without a result; the message has the reason."""


class DeadlineError(WorkerError, TimeoutError):
    """A job that exceeded its deadline; its worker was killed."""


class WorkerDiedError(WorkerError):
    """A worker that ended in the middle of a job (out of memory, stack overflow)."""


class WorkerPool:
    """Up to ``size`` processes, started on demand, that each run ``target`` on one job at a time.

    Args:
        target: ``"module:function"``; the function takes and returns JSON data. Its module is
            imported in the workers only.
        size: largest number of processes; ``None``: ``GEM_CORE_WORKERS``, or the number of CPUs but
            at most 8.
        memory_mb: address space of a worker; a job that needs more fails.
    """

    def __init__(self, target: str, size: int | None = None, memory_mb: int = 4096):
        if size is not None and size < 1:
            raise ValueError(f"A pool needs at least one worker, not {size}.")
        self.target = target
        self.size = size or _default_size()
        self.memory_mb = memory_mb
        self._reset()
        atexit.register(self.close)
        # A forked child must not use the workers of its parent.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._free = threading.Condition()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self.replaced = 0

    def call(self, job: Any, deadline_s: float) -> Any:
        """Run ``target(job)`` in a worker and return its result.

        The deadline begins when a worker gets the job; starting a worker does not count.

        Raises:
            DeadlineError: the job took longer than ``deadline_s`` seconds.
            WorkerDiedError: the worker ended.
            WorkerError: the function raised; the message is that of its exception.
        """
        worker = self._acquire()
        try:
            reply = worker.run(job, deadline_s)
        except BaseException:
            self._discard(worker)
            raise
        self._release(worker)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply["result"]

    def close(self) -> None:
        """Stop all workers. The next call starts new ones."""
        with self._free:
            workers = self._all
            self._all = set()
            self._idle = []
            self._free.notify_all()
        for worker in workers:
            worker.kill()

    def _acquire(self) -> _Worker:
        with self._free:
            while not self._idle:
                if len(self._all) < self.size:
                    worker = _Worker(self.target, self.memory_mb)
                    self._all.add(worker)
                    return worker
                self._free.wait()
            return self._idle.pop()

    def _release(self, worker: _Worker) -> None:
        with self._free:
            if worker in self._all:
                self._idle.append(worker)
                self._free.notify()

    def _discard(self, worker: _Worker) -> None:
        worker.kill()
        with self._free:
            self._all.discard(worker)
            self.replaced += 1
            self._free.notify()


class _Worker:
    """One process and its two pipes."""

    def __init__(self, target: str, memory_mb: int):
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
            "PYTHONHASHSEED": "0",  # the same order of sets in every worker
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "gem_core.envs.graders._worker", target, str(memory_mb)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )
        self._ready = False

    def run(self, job: Any, deadline_s: float) -> dict[str, Any]:
        if not self._ready:
            reply = self._receive(time.monotonic() + _START_S)
            if "error" in reply:
                raise WorkerError(f"A worker could not start: {reply['error']}")
            self._ready = True
        self._send({"job": job, "deadline_s": deadline_s})
        return self._receive(time.monotonic() + deadline_s)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        body = json.dumps(message).encode()
        try:
            self._process.stdin.write(len(body).to_bytes(_HEADER, "big") + body)
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerDiedError(f"The worker has ended: {error}.") from error

    def _receive(self, until: float) -> dict[str, Any]:
        size = int.from_bytes(self._read(_HEADER, until), "big")
        if size > _MAX_REPLY:
            raise WorkerDiedError(f"The worker announced a reply of {size} bytes.")
        reply: dict[str, Any] = json.loads(self._read(size, until))
        return reply

    def _read(self, count: int, until: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
        parts = []
        missing = count
        while missing:
            left = until - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise DeadlineError("The job exceeded its deadline; its worker was killed.")
            part = os.read(descriptor, missing)
            if not part:
                raise WorkerDiedError("The worker ended in the middle of a job.")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)


def _default_size() -> int:
    chosen = os.environ.get("GEM_CORE_WORKERS")
    if chosen:
        return max(1, int(chosen))
    return max(1, min(8, os.cpu_count() or 1))


_pools: dict[str, WorkerPool] = {}
_pools_lock = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_pools_lock=threading.Lock()))


def shared_pool(target: str) -> WorkerPool:
    """Return this process's pool that runs ``target``; it is made at the first call."""
    with _pools_lock:
        pool = _pools.get(target)
        if pool is None:
            pool = WorkerPool(target)
            _pools[target] = pool
        return pool
