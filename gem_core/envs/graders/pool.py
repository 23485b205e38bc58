"""Worker processes that run one function with a deadline, shared by all environments.

pebble's process pool kills the worker of a job that exceeds its deadline, and replaces it. The pool
is in a process of its own (`gem_core.envs.graders._pool_server`): a fresh interpreter, so that
threads and locks of the calling process (torch, Ray) are not copied, its main program is not
imported again, and sets have the same order everywhere. Jobs and results are JSON, so that a worker
that an answer has compromised cannot make the calling process run code. Calls may come from any
thread.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from importlib.util import find_spec
from itertools import count
from multiprocessing import Pipe
from typing import Any

from gem_core.errors import GemError, MissingDependencyError

_START_S = 120.0
Reply = dict[str, Any]
"""``{"result": ...}``, or ``{"error": message, "kind": ...}`` with a kind of `_ERRORS`."""


class WorkerError(GemError, RuntimeError):
    """A job without a result; the message has the reason."""


class DeadlineError(WorkerError, TimeoutError):
    """A job that exceeded its deadline; its worker was killed."""


class GraderDiedError(WorkerError):
    """A worker that ended in the middle of a job (out of memory, stack overflow)."""


_ERRORS = {"deadline": DeadlineError, "died": GraderDiedError, "failed": WorkerError}


def require_pebble(extra: str) -> None:
    """Check that workers can be started.

    Args:
        extra: of gem-core, which has what is missing.

    Raises:
        MissingDependencyError: pebble is not installed.
    """
    if find_spec("pebble") is None:
        raise MissingDependencyError(
            f"Worker processes need pebble: pip install 'gem-core[{extra}]'."
        )


class GraderPool:
    """``size`` processes, started at the first call, that each run ``target`` on a job at a time.

    Args:
        target: ``"module:function"``; the function takes and returns JSON data. Its module is
            imported in the workers only.
        size: number of processes; ``None``: ``GEM_CORE_WORKERS``, or the number of CPUs but at
            most 8.
        memory_mb: address space of a worker; a job that needs more fails.
    """

    def __init__(self, target: str, size: int | None = None, memory_mb: int = 4096):
        if size is not None and size < 1:
            raise ValueError(f"A pool needs at least one worker, not {size}.")
        self.target = target
        self.size = size or _default_size()
        self.memory_mb = memory_mb
        self._lock = threading.Lock()
        self._server: _Server | None = None
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forget)

    def call(self, job: Any, deadline_s: float) -> Any:
        """Run ``target(job)`` in a worker and return its result.

        The deadline begins when a worker gets the job; starting a worker does not count.

        Raises:
            DeadlineError: the job took longer than ``deadline_s`` seconds.
            WorkerDiedError: the worker ended.
            WorkerError: the function raised; the message is that of its exception.
        """
        with self._lock:
            if self._server is None or self._server.has_ended:
                self._server = _Server(self.target, self.size, self.memory_mb)
            future = self._server.submit(job, deadline_s)
        reply = future.result()
        if "error" in reply:
            raise _ERRORS[reply["kind"]](reply["error"])
        return reply["result"]

    def close(self) -> None:
        """Stop all workers. The next call starts new ones."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.kill()

    def _forget(self) -> None:
        """Leave the workers to the parent, of which this process is a fork."""
        self._lock = threading.Lock()
        if self._server is not None:
            self._server.forget()
        self._server = None


class _Server:
    """The process with the workers, and a thread that reads its replies."""

    def __init__(self, target: str, size: int, memory_mb: int) -> None:
        self._connection, theirs = Pipe()
        descriptor = theirs.fileno()
        numbers = map(str, (size, memory_mb, descriptor))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gem_core.envs.graders._pool_server", target, *numbers],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[descriptor],
            env=_environment(),
            start_new_session=True,
        )
        theirs.close()
        self._lock = threading.Lock()
        self._numbers = count()
        self._waiting: dict[int, Future[Reply]] = {}
        self._end: Reply | None = None
        threading.Thread(target=self._read, daemon=True, name="gem-grader-pool").start()

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more jobs."""
        return self._end is not None

    def submit(self, job: Any, deadline_s: float) -> Future[Reply]:
        """Send a job; the reply has a result or an error."""
        future: Future[Reply] = Future()
        with self._lock:
            if self._end is not None:
                future.set_result(self._end)
                return future
            number = next(self._numbers)
            self._waiting[number] = future
            with contextlib.suppress(OSError):  # it has ended: the thread answers
                self._connection.send_bytes(json.dumps([number, job, deadline_s]).encode())
        return future

    def kill(self) -> None:
        """End the process with all workers."""
        with self._lock:
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def forget(self) -> None:
        """Close the connection, in a fork, which would keep the workers alive."""
        self._connection.close()

    def _read(self) -> None:
        end = self._pass_replies()
        self.kill()
        with self._lock:
            self._end = end
            self._connection.close()
        for future in self._waiting.values():
            future.set_result(end)

    def _pass_replies(self) -> Reply:
        """Pass replies until the process ends; return the reply to the jobs that are left."""
        end: Reply = {"error": "The workers ended in the middle of a job.", "kind": "died"}
        try:
            if not self._connection.poll(_START_S):
                return {**end, "error": f"The workers did not start within {_START_S:.0f} s."}
            while True:
                number, reply = json.loads(self._connection.recv_bytes())
                if number is not None:
                    self._waiting.pop(number).set_result(reply)
                elif "error" in reply:
                    end = reply
        except (EOFError, OSError):
            return end


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "PYTHONHASHSEED": "0",  # the same order of sets in every worker
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _default_size() -> int:
    chosen = os.environ.get("GEM_CORE_WORKERS")
    if chosen:
        return max(1, int(chosen))
    return max(1, min(8, os.cpu_count() or 1))


_pools: dict[str, GraderPool] = {}
_pools_lock = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_pools_lock=threading.Lock()))


def get_pool(target: str) -> GraderPool:
    """Return this process's pool that runs ``target``; it is made at the first call."""
    with _pools_lock:
        pool = _pools.get(target)
        if pool is None:
            pool = GraderPool(target)
            _pools[target] = pool
        return pool
