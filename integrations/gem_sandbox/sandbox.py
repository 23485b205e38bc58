"""`Sandbox`: run untrusted programs."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from gem_core.execution.sandbox.levels import DEFAULTS, choose_level
from gem_core.execution.sandbox.results import (
    SandboxError,
    SandboxLimits,
    SandboxResult,
    SandboxUnavailable,
)
from gem_sandbox import guarded
from gem_sandbox.connection import Connection
from gem_sandbox.launch import Options, ways
from gem_sandbox.messages import request, result_of
from gem_sandbox.process import ServerProcess
from gem_sandbox.session import SandboxSession

_WAIT = 60.0  # seconds for a free slot
_FOR_PROGRAMS = ("base64", "select", "signal", "stat", "subprocess")
"""What `gem_core.execution.sandbox.shell` imports."""


class Sandbox:
    """Runs Python programs in processes that can reach nothing but a folder of their own.

    It may be used from many threads at once. A process that forks itself starts servers of its own
    at its first call.

    Args:
        level: one of `LEVELS`; ``None``: the variable ``GEM_CORE_SANDBOX``, or else the strongest
            of ``strict``, ``confined`` and ``limited`` that this machine offers.
        limits: what a call may use, where the call does not say.
        servers: how many server processes share the calls.
        slots: calls and sessions at once, on each server.
        spares: confined children that wait for a call, on each server.
        tmpfs_mb: at level *strict*, the most that the files of one program may take, whatever its
            limits say; they are in memory. At *container*, the most of all programs together.
        packages: folders that programs may import from, besides the standard library.
        preload: modules that a server imports before its first program, to make them fast; with
            ``programs`` those that start programs, where none are given.
        programs: whether programs may start processes, and execute the system's programs
            (``/usr/bin``) and files of their own folder. All else is as promised: no network, no
            files but their own. SECURITY.md says what changes.

    Attributes:
        level: the level; it never changes.
        how: what it is made of here: ``"bwrap"``, ``"unshare"``, ``"plain"``, ...
        limits: as given.
        own_user: whether programs run as users of their own.

    Raises:
        SandboxUnavailable: this machine does not offer the level, or none of the default ones.
        SandboxError: there is no such level.
    """

    def __init__(
        self,
        level: str | None = None,
        *,
        limits: SandboxLimits | None = None,
        servers: int = 1,
        slots: int = 64,
        spares: int = 2,
        tmpfs_mb: int = 512,
        packages: tuple[str, ...] = (),
        preload: tuple[str, ...] = (),
        programs: bool = False,
    ):
        self.limits = limits or SandboxLimits()
        chosen = choose_level(level)
        self._lock = threading.Lock()
        self._servers: list[ServerProcess | None] = [None] * servers
        self._next = 0
        self._slots = threading.BoundedSemaphore(servers * slots)
        self._owner = os.getpid()
        preload = preload or (_FOR_PROGRAMS if programs else ())
        self._options = Options(
            chosen or "", "", slots, spares, tmpfs_mb, tuple(packages), tuple(preload), programs
        )
        self._finalizer = weakref.finalize(self, _close, self._servers)
        self.own_user = False
        if chosen == "guarded":
            self.level = chosen
            self.how = "rlimits"
            return
        server = _start([chosen] if chosen else list(DEFAULTS), self._options)
        self._servers[0] = server
        self._options = server.options
        self.level = server.options.level
        self.how = server.options.how
        self.own_user = bool(server.described["own_user"])

    def run(
        self,
        code: str,
        *,
        stdin: str | None = None,
        names: Mapping[str, Any] | None = None,
        limits: SandboxLimits | None = None,
    ) -> SandboxResult:
        """Run a program in a new process, and an empty folder of its own.

        Args:
            code: the program, in Python.
            stdin: its standard input.
            names: global variables that it finds; what JSON can hold.
            limits: what it may use; ``None``: the sandbox's limits.

        Returns:
            Always a result, whatever the program does. Waiting for a free slot is not part of its
            seconds.
        """
        limits = limits or self.limits
        if self.level == "guarded":
            return guarded.run(code, stdin, names or {}, limits)
        if not self._slots.acquire(timeout=_WAIT):
            reason = "every slot is taken by a session: close sessions, or ask for more slots"
            return SandboxResult(reason, "unavailable", 0.0, False, self.level)
        try:
            return self._run(request(code, stdin, names, limits, keep=False, forks=False), limits)
        finally:
            self._slots.release()

    def session(
        self, *, branches: bool = False, limits: SandboxLimits | None = None
    ) -> SandboxSession:
        """Return an interpreter that keeps its variables from call to call.

        Args:
            branches: whether `Session.branch` will be called. Such a session's programs may fork;
                ``limits.threads`` bounds all of its processes together.
            limits: what each call may use; ``None``: the sandbox's limits.

        Raises:
            SandboxError: every slot is taken, or this level has no sessions.
        """
        if self.level == "guarded":
            raise SandboxError(
                "The sandbox level 'guarded' has no sessions: ask for another level, or call run()."
            )
        if not self._slots.acquire(timeout=_WAIT):
            raise SandboxError(
                "Every slot of the sandbox is taken by a session: close sessions that are not "
                "used any more, or make the sandbox with more slots."
            )
        try:
            server, connection = self._connect()
        except BaseException:
            self._slots.release()
            raise
        return SandboxSession(
            connection,
            self.level,
            limits or self.limits,
            branches,
            self._slots,
            server.connect,
            lambda: self._replace(server),
        )

    def close(self) -> None:
        """End the servers and every program and session; it may be called more than once."""
        self._finalizer()

    def _run(self, message: dict[str, Any], limits: SandboxLimits) -> SandboxResult:
        server = None
        connection = None
        try:
            server, connection = self._connect()
            answer = connection.ask(message, limits.seconds)
        except SandboxError as error:
            self._replace(server)
            return SandboxResult(str(error), "sandbox_died", limits.seconds, False, self.level)
        finally:
            if connection is not None:
                connection.close()
        return result_of(answer, self.level)

    def _connect(self) -> tuple[ServerProcess, Connection]:
        """Return a server and a new connection to it; one that has ended is started again."""
        server = self._server()
        try:
            return server, Connection(server.connect())
        except SandboxError:
            self._replace(server)
        server = self._server()
        return server, Connection(server.connect())

    def _server(self) -> ServerProcess:
        """Return the next server, started if it is not running."""
        with self._lock:
            if os.getpid() != self._owner:
                self._owner = os.getpid()
                self._servers[:] = [None] * len(self._servers)
            if not self._finalizer.alive:
                raise SandboxError("The sandbox is closed: make a new one.")
            number = self._next
            self._next = (number + 1) % len(self._servers)
            server = self._servers[number]
            if server is None:
                server = self._servers[number] = ServerProcess(self._options)
            return server

    def _replace(self, server: ServerProcess | None) -> None:
        """End a server that does not answer; the next call starts another one."""
        if server is None:
            return
        with self._lock:
            if server not in self._servers:
                return  # another thread was faster
            self._servers[self._servers.index(server)] = None
        server.close(kill=True)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Sandbox {self.level} ({self.how})>"


def _start(levels: list[str], options: Options) -> ServerProcess:
    """Start a server at the first level, and in the first way, that works here."""
    reasons = []
    for level in levels:
        try:
            for how in ways(level):
                try:
                    return ServerProcess(options._replace(level=level, how=how))
                except SandboxUnavailable as error:
                    reasons.append(str(error))
        except SandboxUnavailable as error:
            reasons.append(str(error))
    text = " ".join(reasons)
    if len(levels) == 1:
        raise SandboxUnavailable(f"{text} See SECURITY.md for what each level needs.")
    raise SandboxUnavailable(
        f"This machine offers no isolation for untrusted programs. {text} For programs that you "
        f"trust, ask for the level 'guarded' by name, or set GEM_CORE_SANDBOX=guarded."
    )


def _close(servers: list[ServerProcess | None]) -> None:
    for number, server in enumerate(servers):
        if server is not None:
            servers[number] = None
            server.close()
