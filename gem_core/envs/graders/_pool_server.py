"""The process of a `gem_core.envs.graders.pool.GraderPool`, with its workers.

It holds a process pool of pebble, whose workers are forks: they start in milliseconds and share
the module of the target, which is imported here once. Forks are safe because this is a fresh
interpreter without other threads than pebble's.

Requests are ``[number, job, deadline_s]``, replies ``[number, {"result": ...}]`` or
``[number, {"error": message, "kind": kind}]``, all JSON. The reply with the number ``null`` says
whether the target could be imported.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any

from gem_core.errors import error_line


def main(target: str, size: int, memory_mb: int, descriptor: int) -> None:
    """Serve until the other end closes the connection, then end with all workers."""
    connection: Connection[Any, Any] = Connection(descriptor)
    try:
        from pebble import ProcessPool

        module, _, name = target.partition(":")
        function = getattr(import_module(module), name)
    except BaseException as error:  # an exit is a failure like others
        _send(connection, None, _failure(f"A worker could not start: {error_line(error)}"))
        return
    start_pool = partial(
        ProcessPool,
        size,
        initializer=_start_worker,
        initargs=(connection, memory_mb),
        context=get_context("fork"),
    )
    _send(connection, None, '{"result": true}')
    _Server(connection, function, start_pool).run()
    os.killpg(0, signal.SIGKILL)  # this process, too; no worker outlives the caller


class _Server:
    """Passes jobs to the pool and results to the connection."""

    def __init__(
        self,
        connection: Connection[Any, Any],
        function: Callable[[Any], Any],
        start_pool: Callable[[], Any],
    ) -> None:
        self._connection = connection
        self._function = function
        self._start_pool = start_pool
        self._pool = start_pool()
        self._replying = Lock()

    def run(self) -> None:
        while True:
            try:
                number, job, deadline_s = json.loads(self._connection.recv_bytes())
            except (EOFError, OSError):
                return
            if not self._pool.active:  # a worker was killed while it had no job
                self._pool.join()
                self._pool = self._start_pool()
            future = self._pool.schedule(_run, (self._function, job), timeout=deadline_s)
            future.add_done_callback(partial(self._reply, number))

    def _reply(self, number: int, future: Future[str]) -> None:
        error = future.exception()
        if error is None:
            body = future.result()
        elif isinstance(error, TimeoutError):
            body = _failure("The job exceeded its deadline; its worker was killed.", "deadline")
        else:
            body = _failure("The worker ended in the middle of a job.", "died")
        with self._replying:
            _send(self._connection, number, body)


def _start_worker(connection: Connection[Any, Any], memory_mb: int) -> None:
    """Prepare a worker that has just been forked."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # it also ends a worker that runs no Python
    connection.close()  # it is closed for the caller when the server ends
    size = memory_mb << 20
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        size = min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _run(function: Callable[[Any], Any], job: Any) -> str:
    """Run one job in a worker; every exception becomes an answer, and nothing but text returns."""
    try:
        result = function(job)
    except BaseException as error:
        return _failure(f"{error_line(error):.500}")
    try:
        return json.dumps({"result": result})
    except (TypeError, ValueError, RecursionError) as error:
        return _failure(f"The result is not JSON: {error}")


def _failure(message: str, kind: str = "failed") -> str:
    return json.dumps({"error": message, "kind": kind})


def _send(connection: Connection[Any, Any], number: int | None, body: str) -> None:
    connection.send_bytes(f"[{json.dumps(number)}, {body}]".encode())


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
