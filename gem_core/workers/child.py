"""The program of a worker process, which `gem_core.workers.process` starts.

A thread reads requests. Environments that cannot block are called one after another in the main
thread; calls of the others run in threads, so that none waits for another. A worker ends with its
parent: when the socket closes, and by a signal of the kernel (Linux) in case it cannot read.

Requests are ``("call", id, env, builder, history, method, arguments)``,
``("answer", id, answered, value)`` and ``("stop",)``; replies ``("ready", pid)``,
``("building", id)``, ``("started", id)``, ``("done", id, facts, result)``,
``("failed", id, error, built)`` and ``("ask", id, name, value)``. Builders, histories, arguments
and results are pickles themselves.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from queue import SimpleQueue
from typing import Any

from gem_core.core import Env
from gem_core.workers.blocking import never_blocks
from gem_core.workers.errors import describe_error
from gem_core.workers.messages import PIECE, Unpacker, pack

THREADS = 128
"""Calls of environments that may block, in one worker at a time."""
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_current = threading.local()


def ask(name: str, value: Any) -> Any:
    """Ask the parent process during a call of an environment; return its answer.

    Args:
        name: of the callback, see `gem_core.workers.env.WorkerEnv`.
        value: its argument.
    """
    child: Child = _current.child
    return child.ask(_current.call, name, value)


def build(target: str, arguments: tuple[Any, ...]) -> Env:
    """Return what the function ``"module:function"`` makes of ``arguments``."""
    module, _, name = target.partition(":")
    env: Env = getattr(import_module(module), name)(*arguments)
    return env


class Child:
    """The environments of this process and the calls of them.

    Args:
        connection: the socket to the parent.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._envs: dict[int, Env] = {}
        self._kinds: dict[bytes, bool] = {}  # builder -> whether its environments may block
        self._blocks: dict[int, bool] = {}
        self._answers: dict[int, SimpleQueue[Any]] = {}
        self._serial: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = ThreadPoolExecutor(THREADS, "gem-env")

    def run(self) -> None:
        """Serve requests until the parent ends."""
        threading.Thread(target=self._read, daemon=True, name="gem-reader").start()
        self.send(("ready", os.getpid()))
        while True:
            job = self._serial.get()
            if job is None:
                break
            job()
        for env in self._envs.values():
            env.close()

    def send(self, message: Any) -> None:
        """Send one message; messages of several threads do not mix."""
        packed = pack(message)
        with self._sending:
            self._connection.sendall(packed)

    def ask(self, call: int, name: str, value: Any) -> Any:
        """See the function `ask`."""
        answers = self._answers.setdefault(call, SimpleQueue())
        self.send(("ask", call, name, value))
        answered, answer = answers.get()
        if not answered:
            raise RuntimeError(f"{name} failed in the trainer's process: {answer}")
        return answer

    def _read(self) -> None:
        try:
            unpacker = Unpacker()
            while piece := self._connection.recv(PIECE):
                for message in unpacker.feed(piece):
                    self._dispatch(*message)
        finally:  # without its parent nobody reads what calls under way would return
            os._exit(0)

    def _dispatch(self, kind: str, *rest: Any) -> None:
        if kind == "call":
            self._begin(*rest)
        elif kind == "answer":
            self._answers[rest[0]].put(rest[1:])
        else:
            self._serial.put(None)

    def _begin(
        self, call: int, key: int, builder: bytes, history: bytes, method: str, arguments: bytes
    ) -> None:
        """Run a call where the calls of such an environment belong."""

        def job() -> None:
            self._run(call, key, builder, history, method, arguments)

        if key not in self._blocks and builder not in self._kinds:
            # The first of its kind is built here, which tells how its calls are to be run.
            self.send(("building", call))
            try:
                self._make(key, builder)
            except BaseException as error:
                self.send(("failed", call, describe_error(error), False))
                return
        blocks = self._blocks.setdefault(key, self._kinds.get(builder, False))
        if blocks:
            self._threads.submit(job)
        else:
            self._serial.put(job)

    def _run(
        self, call: int, key: int, builder: bytes, history: bytes, method: str, arguments: bytes
    ) -> None:
        _current.child = self
        _current.call = call
        reply: tuple[Any, ...]
        try:
            if key not in self._envs or history:
                self.send(("building", call))
            env = self._envs.get(key)
            if env is None:
                env = self._make(key, builder)
            if history:
                _repeat(env, pickle.loads(history))
            positional, named = pickle.loads(arguments)
            self.send(("started", call))
            result = _call(env, method, positional, named)
            reply = ("done", call, _facts(env, method), _pickled(result))
        except BaseException as error:
            reply = ("failed", call, describe_error(error), key in self._envs)
        self._answers.pop(call, None)
        if method == "close":
            self._forget(key)
        self.send(reply)

    def _make(self, key: int, builder: bytes) -> Env:
        target, arguments = pickle.loads(builder)
        env = build(target, arguments)
        self._blocks[key] = self._kinds[builder] = not never_blocks(env)
        self._envs[key] = env
        return env

    def _forget(self, key: int) -> None:
        self._envs.pop(key, None)
        self._blocks.pop(key, None)


def _call(env: Env, method: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    result = getattr(env, method)(*positional, **named)
    if method == "random_action":  # the caller's generator continues where this one stopped
        return result, positional[0].getstate()
    return result


def _repeat(env: Env, history: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
    """Repeat the calls of an environment whose worker ended, up to where it was."""
    for method, positional, named in history:
        try:
            getattr(env, method)(*positional, **named)
        except Exception as error:
            # A call that failed for its caller fails again; the episode knows of it.
            sys.stderr.write(f"gem-core worker: a repeated {method} failed: {error!r}\n")


def _facts(env: Env, method: str) -> dict[str, Any] | None:
    """Return what the parent's handle shows of the environment, after a reset."""
    if method not in ("reset", "set_state"):
        return None
    return {
        "spec": getattr(env, "spec", None),
        "version": getattr(env, "version", 0),
        "functions": getattr(env, "functions", None),
    }


def _pickled(result: Any) -> bytes:
    try:
        return pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TypeError(
            f"what the environment returned cannot be sent to the trainer's process ({error}): "
            "return plain data, or play it with workers.backend = 'inline' or 'thread'"
        ) from None


def _end_with(parent: int) -> None:
    """Let the kernel end this process with its parent, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended in the meantime
        os._exit(0)


def main() -> None:
    """Serve the parent: the arguments are the number of the socket and the parent's id."""
    number, parent = int(sys.argv[1]), int(sys.argv[2])
    _end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.set_inheritable(number, False)
    Child(socket.socket(fileno=number)).run()
    sys.stdout.flush()
    os._exit(0)  # threads with hung calls do not keep it
