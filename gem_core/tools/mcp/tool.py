"""`McpTool`: a tool of an MCP server as a `gem_core.tools.Tool`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gem_core.env.registration.references import needs_trust
from gem_core.errors import StateError, unknown
from gem_core.tools.base import Call, Tool, ToolResult
from gem_core.tools.mcp.pool import pool_of
from gem_core.tools.mcp.session import McpServer, McpSession, ToolInfo


class McpTool(Tool):
    """Calls a tool of an MCP server.

    Tools of one server share a session in an environment.

    Args:
        tool: the tool's name, as its server lists it.
        command: the command that starts the server, which then speaks on its standard input and
            output.
        url: the address of a running server (streamable HTTP), instead of a command.
        env: more environment variables of the command.
        headers: HTTP headers for ``url``.
        stateful: whether calls change what later calls return. Then each episode has a session of
            its own, which ends with it; its state is its calls, which are repeated where it is
            restored.
        seconds: wall seconds of a call.
        formats: the formats of calls; ``tool_call`` by default.

    Raises:
        McpError: the server cannot be used.
        UnknownNameError: it has no such tool.
        MissingDependencyError: the package ``mcp`` is not installed.
    """

    known_formats: ClassVar[tuple[str, ...]] = ("tool_call",)

    def __init__(
        self,
        *,
        tool: str,
        command: Sequence[str] = (),
        url: str = "",
        env: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        stateful: bool = False,
        seconds: float = 30.0,
        formats: tuple[str, ...] | None = None,
    ):
        super().__init__(formats)
        if command or env:
            needs_trust("the tool mcp: command and env start a program")
        self.server = McpServer(
            tuple(command),
            url,
            tuple(sorted((env or {}).items())),
            headers=tuple(sorted((headers or {}).items())),
        )
        self.stateful = stateful
        self.seconds = seconds
        self.shares = ("mcp", self.server, stateful)
        info = _info(self.server, tool)
        self.name = info.name
        self.tag = info.name
        self.description = info.description
        self.schema = {"type": "object", "properties": {}, **info.schema}

    def start(self) -> _Episode:
        """Return what the calls of an episode share; see `Tool.start`."""
        return _Episode(self, [])

    def stop(self, session: _Episode) -> None:
        """Give the session back."""
        session.close()

    def save(self, session: _Episode) -> list[Any] | None:
        """Return the calls that made the state."""
        return list(session.calls) if self.stateful else None

    def check(self, state: Any) -> None:
        """Check that a state is a list of calls of this server's tools."""
        if state is not None and not (isinstance(state, list) and all(map(_is_call, state))):
            raise StateError("The state of a tool is its calls: names and arguments.")

    def load(self, state: list[Any] | None) -> _Episode:
        """Return a session that repeats the calls before its next one."""
        return _Episode(self, list(state or []))

    def run(self, call: Call, session: _Episode, seconds: float) -> ToolResult:
        """Run a call; see `Tool.run`."""
        reply = session.call(call.tool, dict(call.arguments), min(seconds, self.seconds))
        text = reply.text.strip("\n")
        if reply.error is not None:
            text = f"[The call failed: {text}]"
        return ToolResult(text or "[No output.]", reply.error, reply.seconds)


def _is_call(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], dict)
    )


class _Episode:
    """The session of one episode, opened at its first call, and opened again if it ends.

    Attributes:
        calls: the calls whose effects it has, if the server has a state.
    """

    def __init__(self, tool: McpTool, calls: list[Any]):
        self.calls = calls
        self._stateful = tool.stateful
        self._seconds = tool.seconds
        self._pool = pool_of(tool.server)
        self._session: McpSession | None = None

    def call(self, name: str, arguments: dict[str, Any], seconds: float) -> Any:
        """Call a tool."""
        session = self._open()
        reply = session.call(name, arguments, seconds)
        if self._stateful:
            self.calls.append([name, arguments])
        if not session.alive:
            self.close()
            self.calls.clear()  # the state went with the server
        return reply

    def close(self) -> None:
        """Give the session back."""
        if self._session is not None:
            self._pool.give_back(self._session, used_up=self._stateful)
            self._session = None

    def _open(self) -> McpSession:
        if self._session is None:
            self._session = self._pool.lease()
            for name, arguments in self.calls:
                self._session.call(name, arguments, self._seconds)
        return self._session


def mcp_tools(
    *,
    command: Sequence[str] = (),
    url: str = "",
    names: Sequence[str] | None = None,
    **options: Any,
) -> list[McpTool]:
    """Return the tools of a server, all or those with the given names; see `McpTool`."""
    server = McpServer(tuple(command), url, headers=tuple((options.get("headers") or {}).items()))
    if options.get("env"):
        server = server._replace(env=tuple(sorted(options["env"].items())))
    listed = [info.name for info in _infos(server)] if names is None else list(names)
    return [McpTool(tool=name, command=command, url=url, **options) for name in listed]


_listed: dict[McpServer, list[ToolInfo]] = {}


def _infos(server: McpServer) -> list[ToolInfo]:
    """Return the tools of a server, asked once in a process."""
    if server not in _listed:
        pool = pool_of(server)
        session = pool.lease()
        _listed[server] = session.tools
        pool.give_back(session)
    return _listed[server]


def _info(server: McpServer, name: str) -> ToolInfo:
    infos = {info.name: info for info in _infos(server)}
    if name not in infos:
        raise unknown("tool of the MCP server", name, infos, f"It has: {', '.join(infos)}.")
    return infos[name]
