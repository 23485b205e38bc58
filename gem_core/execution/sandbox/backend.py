"""`Backend`: where programs run, and the level of isolation that it promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gem_core.execution.sandbox.results import SandboxLimits, SandboxResult


class BackendSession(Protocol):
    """An interpreter that keeps its variables and files from call to call.

    Attributes:
        over: whether it has ended: after a call that exceeded a limit, exited or crashed.
    """

    over: bool

    def run(self, code: str, *, limits: SandboxLimits | None = None) -> SandboxResult:
        """Run a piece of program on the state that the earlier ones left."""

    def close(self) -> None:
        """End the interpreter; it may be called more than once."""


class Backend(Protocol):
    """Runs Python programs, each in a process and an empty folder of its own.

    `gem_sandbox.Sandbox` is the one of gem-core. A package registers its own by an
    entry point in the group ``gem_core.sandboxes``: name -> class. It is made as
    ``Class(level, programs=programs)``: ``level`` is what the caller needs, or ``None``;
    ``programs`` says whether bash and the system's programs must run in it. It raises
    `SandboxUnavailable` where it cannot do that. Many threads may call it at once.

    Attributes:
        level: the level of `LEVELS` that it promises; SECURITY.md says what each promises.
        limits: what a call may use where it does not say.
    """

    level: str
    limits: SandboxLimits

    def run(
        self,
        code: str,
        *,
        stdin: str | None = None,
        names: Mapping[str, Any] | None = None,
        limits: SandboxLimits | None = None,
    ) -> SandboxResult:
        """Run a program, and return a result whatever it does.

        Args:
            code: the program, in Python.
            stdin: its standard input; ``None``: empty.
            names: global variables that it finds; what JSON can hold.
            limits: what it may use; ``None``: the back end's limits.
        """

    def session(self, *, limits: SandboxLimits | None = None) -> BackendSession:
        """Return a new interpreter.

        Raises:
            SandboxError: this back end has none.
        """

    def close(self) -> None:
        """End every program and session; it may be called more than once."""
