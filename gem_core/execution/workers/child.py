"""The program of a worker process, which `gem_core.execution.workers.process` or a launcher starts.

A thread reads requests. Environments that cannot block are called one after another in the main
thread; calls of the others run in threads, so that none waits for another. A worker ends with its
parent: when the socket closes, and by a signal of the kernel (Linux) in case it cannot read.

Requests are ``("call", id, env, builder, history, method, arguments)``,
``("answer", id, answered, value)`` and ``("stop",)``; replies ``("ready", pid)``,
``("done", id, facts, result, blocks, seconds)``, ``("failed", id, error, built)`` and
``("ask", id, name, value)``. Builders, histories, arguments, values, facts and results are pickles
themselves.
When a call begins is noted in memory that the parent reads (`gem_core.execution.workers.marks`); a
worker without such memory sends ``("building", id)`` and ``("started", id)``.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from queue import SimpleQueue
from typing import Any

from gem_core.env.blocking import never_blocks
from gem_core.env.interface import Env
from gem_core.env.remote.errors import describe_error
from gem_core.errors import error_line, text_of
from gem_core.execution.workers.by_value import define
from gem_core.execution.workers.job_threads import Job, JobThreads
from gem_core.execution.workers.marks import SLOTS, Marks
from gem_core.execution.workers.messages import PIECE, Unpacker
from gem_core.execution.workers.replies import Replies

_MAIN, _READER, _FIRST_THREAD = range(3)  # slots
THREADS = SLOTS - _FIRST_THREAD
"""Calls of environments that may block, in one worker at a time."""
CONNECT_S = 30.0
"""Seconds in which a worker of another machine must reach the pool."""
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_current = threading.local()


def ask(name: str, value: Any) -> Any:
    """Ask the parent process during a call of an environment; see `WorkerEnv`."""
    child: Child = _current.child
    return child.ask(_current.call, name, value)


def build(
    target: str | Callable[..., Env], arguments: tuple[Any, ...], definition: bytes = b""
) -> Env:
    """Return the environment of a `gem_core.execution.workers.records.Builder`."""
    define(definition)
    if not isinstance(target, str):
        return target(*arguments)
    module, _, name = target.partition(":")
    env: Env = getattr(import_module(module), name)(*arguments)
    return env


class Child:
    """The environments of this process and the calls of them; without marks it sends messages."""

    def __init__(self, connection: socket.socket, marks: Marks | None = None) -> None:
        self._connection = connection
        self._marks = marks
        self._replies = Replies(connection)
        self._envs: dict[int, Env] = {}
        self._kinds: dict[bytes, bool] = {}  # builder -> whether its environments may block
        self._blocks: dict[int, bool] = {}
        self._told: dict[int, bytes] = {}  # facts that the parent has
        self._answers: dict[int, SimpleQueue[Any]] = {}
        self._serial: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = JobThreads(THREADS, _FIRST_THREAD)

    def run(self) -> None:
        """Serve requests until the parent ends."""
        threading.Thread(target=self._read, daemon=True, name="gem-reader").start()
        self.send(("ready", os.getpid()))
        while True:
            job = self._serial.get()
            if job is None:
                break
            job(_MAIN)
        for env in self._envs.values():
            try:
                env.close()
            except BaseException as error:  # the others are closed all the same
                sys.stderr.write(f"gem-core worker: close failed: {error_line(error)}\n")

    def send(self, message: tuple[Any, ...]) -> None:
        """Send one message now; messages of several threads do not mix."""
        self._replies.send(message)

    def _reply(self, reply: tuple[Any, ...], blocks: bool) -> None:
        """Send the reply to a call, with the next one where that is about to run."""
        if self._threads.has_waiting if blocks else not self._serial.empty():
            self._replies.hold(reply)
        else:
            self._replies.send(reply)

    def _begins(self, slot: int, call: int, *, builds: bool) -> None:
        if self._marks is None:
            self.send(("building" if builds else "started", call))
        else:
            self._marks.begin(slot, call, builds=builds)

    def _ends(self, slot: int) -> None:
        if self._marks is not None:
            self._marks.end(slot)

    def ask(self, call: int, name: str, value: Any) -> Any:
        """See the function `ask`."""
        answers = self._answers.setdefault(call, SimpleQueue())
        self.send(("ask", call, name, pickle.dumps(value)))
        answered, answer = answers.get()
        if not answered:
            raise RuntimeError(f"{name} failed in the trainer's process: {answer}")
        return pickle.loads(answer)

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
        if key not in self._blocks and builder not in self._kinds:
            # The first of its kind is built here, which tells how its calls are to be run.
            self._begins(_READER, call, builds=True)
            try:
                self._make(key, builder)
            except BaseException as error:
                self._ends(_READER)
                self.send(("failed", call, describe_error(error), False))
                return
            self._ends(_READER)
        blocks = self._blocks.setdefault(key, self._kinds.get(builder, False))

        def job(slot: int) -> None:
            self._run(slot, blocks, call, key, builder, history, method, arguments)

        if blocks:
            self._threads.submit(job)
        else:
            self._serial.put(job)

    def _run(
        self,
        slot: int,
        blocks: bool,
        call: int,
        key: int,
        builder: bytes,
        history: bytes,
        method: str,
        arguments: bytes,
    ) -> None:
        _current.child = self
        _current.call = call
        began = time.perf_counter()
        reply: tuple[Any, ...]
        try:
            if key not in self._envs or history:
                self._begins(slot, call, builds=True)
            env = self._envs.get(key)
            if env is None:
                env = self._make(key, builder)
            if history:
                _repeat(env, pickle.loads(history))
            positional, named = pickle.loads(arguments)
            self._begins(slot, call, builds=False)
            result = _pickle_result(_call(env, method, positional, named))
            facts = self._facts(key, env, method)
            reply = ("done", call, facts, result, blocks, time.perf_counter() - began)
        except BaseException as error:
            reply = ("failed", call, describe_error(error), key in self._envs)
        self._ends(slot)
        if self._answers:
            self._answers.pop(call, None)
        if method == "close":
            self._forget(key)
        self._reply(reply, blocks)

    def _make(self, key: int, builder: bytes) -> Env:
        env = build(*pickle.loads(builder))
        self._blocks[key] = self._kinds[builder] = not never_blocks(env)
        self._envs[key] = env
        return env

    def _forget(self, key: int) -> None:
        self._envs.pop(key, None)
        self._blocks.pop(key, None)
        self._told.pop(key, None)

    def _facts(self, key: int, env: Env, method: str) -> bytes | None:
        """Return what the parent's handle shows of the environment, after a reset changed it."""
        if method not in ("reset", "set_state"):
            return None
        facts = {
            "spec": getattr(env, "spec", None),
            "version": getattr(env, "version", 0),
            "functions": getattr(env, "functions", None),
        }
        packed = pickle.dumps(facts, protocol=pickle.HIGHEST_PROTOCOL)
        if self._told.get(key) == packed:
            return None
        self._told[key] = packed
        return packed


def _call(env: Env, method: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    result = getattr(env, method)(*positional, **named)
    if method == "random_action":  # the caller's generator continues where this one stopped
        return result, positional[0].getstate()
    return result


def _repeat(env: Env, history: list[tuple[str, bytes]]) -> None:
    """Repeat the calls of an environment whose worker ended, up to where it was."""
    for method, arguments in history:
        positional, named = pickle.loads(arguments)
        try:
            getattr(env, method)(*positional, **named)
        except BaseException as error:
            # A call that failed for its caller fails again; the episode knows of it.
            sys.stderr.write(f"gem-core worker: a repeated {method} failed: {error_line(error)}\n")


def _pickle_result(result: Any) -> bytes:
    try:
        return pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TypeError(
            f"what the environment returned cannot be sent to the trainer's process "
            f"({text_of(error)}): "
            "return plain data, or play it with workers.backend = 'inline' or 'thread'"
        ) from None


def _end_with(parent: int) -> None:
    """Let the kernel end this process with its parent, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended in the meantime
        os._exit(0)


def main() -> None:
    """Serve the parent: the arguments are the numbers of socket and memory and the parent's id."""
    number, memory, parent = map(int, sys.argv[1:4])
    _end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.set_inheritable(number, False)
    marks = Marks(memory)
    os.close(memory)
    Child(socket.socket(fileno=number), marks).run()
    sys.stdout.flush()
    os._exit(0)  # threads with hung calls do not keep it


def connect() -> None:
    """Serve a pool elsewhere: the arguments are where it listens and the id of the launcher.

    The token, which tells the pool that this is its worker, is in the standard input.
    """
    address, parent = (sys.argv[1], int(sys.argv[2])), int(sys.argv[3])
    _end_with(parent)
    connection = socket.create_connection(address, CONNECT_S)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(sys.stdin.buffer.read())
    Child(connection).run()
    sys.stdout.flush()
    os._exit(0)  # threads with hung calls do not keep it
