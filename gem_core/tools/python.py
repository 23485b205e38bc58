"""The Python tool: the agent's programs run in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gem_core.env.registration.references import check_level
from gem_core.errors import StateError
from gem_core.execution.sandbox import (
    KINDS,
    Backend,
    BackendSession,
    SandboxLimits,
    SandboxResult,
    get_shared_backend,
)
from gem_core.execution.sandbox.backends import NATIVE, choose_backend
from gem_core.tools.base import Call, Tool, ToolResult


class PythonTool(Tool):
    """Runs Python and returns what it prints.

    Args:
        keep: whether variables and files stay from call to call of an episode. Then the state of an
            episode is its calls, which are repeated where it is restored.
        level: the sandbox's level; ``None``: the strongest that this machine offers.
        seconds: wall seconds of a call.
        memory_mb: memory of a call.
        formats: the formats of calls; all of ``tag``, ``fence`` and ``tool_call`` by default.

    Raises:
        SandboxUnavailable: at the start of an episode, where this machine lacks the level.
    """

    name = "python"
    description = "Runs a Python program with the standard library and returns what it prints."
    schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "a complete Python program"}},
        "required": ["code"],
    }
    tag = "python"
    languages = ("python", "py")
    known_formats: ClassVar[tuple[str, ...]] = ("tag", "fence", "tool_call")

    def __init__(
        self,
        *,
        keep: bool = False,
        level: str | None = None,
        seconds: float = 5.0,
        memory_mb: float = 512,
        formats: tuple[str, ...] | None = None,
    ):
        super().__init__(formats)
        self.keep = keep
        check_level(level)
        self.level = level
        self.limits = SandboxLimits(seconds=seconds, cpu_s=seconds, memory_mb=memory_mb)

    def start(self) -> _Interpreter | None:
        """Start the sandbox, which all episodes of the process share; see `Tool.start`."""
        sandbox = get_shared_backend(self.level)
        return _Interpreter(sandbox, []) if self.keep else None

    def describe(self) -> dict[str, Any]:
        """Return the sandbox's level, and its back end where that is not gem-core's."""
        backend = choose_backend()
        level = {"level": get_shared_backend(self.level).level}
        return level if backend == NATIVE else {**level, "backend": backend}

    def stop(self, session: _Interpreter | None) -> None:
        """End the episode's interpreter."""
        if session is not None:
            session.close()

    def save(self, session: _Interpreter | None) -> list[str] | None:
        """Return the programs that made the state."""
        return None if session is None else list(session.programs)

    def check(self, state: Any) -> None:
        """Check that a state is a list of programs."""
        if state is not None and not (
            isinstance(state, list) and all(isinstance(program, str) for program in state)
        ):
            raise StateError("The state of the Python tool is its programs.")

    def load(self, state: list[str] | None) -> _Interpreter | None:
        """Return an interpreter that repeats the programs at its first call."""
        sandbox = get_shared_backend(self.level)
        return None if state is None else _Interpreter(sandbox, list(state))

    def run(self, call: Call, session: _Interpreter | None, seconds: float) -> ToolResult:
        """Run a program; see `Tool.run`."""
        limits = self.limits._replace(seconds=min(seconds, self.limits.seconds))
        code = call.arguments["code"].encode(errors="replace").decode()
        if session is None:
            result = get_shared_backend(self.level).run(code, limits=limits)
        else:
            result = session.run(code, limits)
        text = result.output.rstrip("\n")
        if result.error not in (None, "error"):
            text += f"\n[The program was ended: {KINDS[str(result.error)]}.]"
            if session is not None:
                text += "\n[The interpreter was started again: its variables are lost.]"
        return ToolResult(
            text.strip("\n") or "[The program printed nothing.]",
            result.error,
            result.seconds,
            result.truncated,
            {"level": result.level},
        )


class _Interpreter:
    """The interpreter of one episode, started at its first call.

    Attributes:
        programs: the calls whose effects it has.
    """

    def __init__(self, sandbox: Backend, programs: list[str]):
        self.programs = programs
        self._sandbox = sandbox
        self._session: BackendSession | None = None

    def run(self, code: str, limits: SandboxLimits) -> SandboxResult:
        """Run a program on the state of those before."""
        if self._session is None:
            self._session = self._sandbox.session(limits=limits)
            for earlier in self.programs:
                self._session.run(earlier)
        result = self._session.run(code, limits=limits)
        self.programs.append(code)
        if self._session.over:
            self.close()
            self.programs.clear()
        return result

    def close(self) -> None:
        """End the interpreter."""
        if self._session is not None:
            self._session.close()
            self._session = None
