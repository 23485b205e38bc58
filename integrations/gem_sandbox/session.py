"""`SandboxSession`: an interpreter that keeps its state from call to call, and can be copied."""

from __future__ import annotations

import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from gem_core.execution.sandbox.results import SandboxError, SandboxLimits, SandboxResult
from gem_sandbox.connection import Connection
from gem_sandbox.messages import request, result_of

_BRANCH_SECONDS = 10.0


class SandboxSession:
    """An interpreter in a sandbox; made by `Sandbox.session`.

    A call that raises an exception leaves the state as it is then. One that exceeds a limit, exits
    or crashes ends the interpreter, and every later call returns the error ``"session_over"``.
    Calls of one session come one after another.

    Attributes:
        level: the level of isolation.
        limits: what each call may use.
        over: whether the interpreter has ended.
    """

    def __init__(
        self,
        connection: Connection,
        level: str,
        limits: SandboxLimits,
        branches: bool,
        slots: threading.Semaphore | None,
        connect: Callable[[], socket.socket],
        report: Callable[[], None],
    ):
        self.level = level
        self.limits = limits
        self.over = False
        self._connection = connection
        self._branches = branches
        self._connect = connect
        self._report = report
        self._number: int | None = None
        self._finalizer = weakref.finalize(self, _close, connection, slots)

    def run(
        self,
        code: str,
        *,
        stdin: str | None = None,
        names: Mapping[str, Any] | None = None,
        limits: SandboxLimits | None = None,
    ) -> SandboxResult:
        """Run a piece of program on the state that the earlier ones left.

        Args:
            code: the program, in Python.
            stdin: its standard input, from this call on.
            names: global variables to set first; what JSON can hold.
            limits: what this call may use. Those of the first call hold for memory, threads and
                file size in all later ones.
        """
        if self.over or not self._finalizer.alive:
            return SandboxResult("", "session_over", 0.0, False, self.level)
        limits = limits or self.limits
        message = request(code, stdin, names, limits, keep=True, forks=self._branches)
        try:
            answer = self._connection.ask(message, limits.seconds)
        except SandboxError as error:
            self.over = True
            self._report()
            return SandboxResult(str(error), "sandbox_died", limits.seconds, False, self.level)
        self._number = answer["session"]
        self.over = answer["kind"] not in (None, "error")
        return result_of(answer, self.level)

    def branch(self) -> SandboxSession:
        """Return a copy of this session: its variables and its files as they are now.

        The copy shares the slot of this session, and its limit of processes and of disk. It runs on
        when this session is closed.

        Raises:
            SandboxError: the session was not made with ``branches=True``, is over, or its limit
                of processes is reached.
        """
        if not self._branches:
            raise SandboxError("Make the session with branches=True to copy it.")
        if self._number is None:
            self.run("")
        connection = Connection(self._connect())
        answer = connection.ask({"op": "branch", "of": self._number}, _BRANCH_SECONDS)
        if answer["kind"] is not None:
            connection.close()
            reason = answer["output"].strip() or answer["kind"]
            raise SandboxError(f"The session could not be copied: {reason}.")
        copy = SandboxSession(
            connection, self.level, self.limits, True, None, self._connect, self._report
        )
        copy._number = answer["session"]
        return copy

    def close(self) -> None:
        """End the interpreter; it may be called more than once."""
        self._finalizer()

    def __enter__(self) -> SandboxSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _close(connection: Connection, slots: threading.Semaphore | None) -> None:
    connection.close()
    if slots is not None:
        slots.release()
