"""`McpSession`: one open connection to an MCP server, with deadlines and typed errors."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import io
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from typing import Any, NamedTuple, TextIO, TypeVar

from gem_core.errors import GemError, MissingDependencyError
from gem_core.tools.mcp.loop import background_loop

T = TypeVar("T")
KINDS = {
    "tool_error": "the tool reported that it failed",
    "protocol_error": "the server refused the call, or its answer is not what the protocol allows",
    "timeout": "the server did not answer before the deadline",
    "server_gone": "the server ended, or closed the connection",
    "cannot_start": "the server could not be started, or reached, or did not greet",
}
"""Every ``error`` of an `McpReply` and ``kind`` of an `McpError`, and what it means."""
_GRACE = 5.0  # seconds beyond a deadline in which the SDK may clean up
_END = 8.0  # seconds for a server to end after its standard input is closed
_PAGES = 100
_LOG = 2000  # characters of a server's standard error in a message


class McpError(GemError, RuntimeError):
    """A server that cannot be used. ``kind`` is one of `KINDS`."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


class McpServer(NamedTuple):
    """How a server is reached: by a command (stdio), a URL (streamable HTTP), or in this process.

    Attributes:
        command: the command and its arguments.
        url: the address of a running server, such as ``http://127.0.0.1:8000/mcp``.
        env: more environment variables of the command, as pairs.
        cwd: its working folder; ``""``: the caller's.
        headers: HTTP headers for ``url``, as pairs.
        here: a server of the package ``mcp`` in this process.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    here: Any = None


class ToolInfo(NamedTuple):
    """A tool as its server lists it: its name, what it does, and the schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


class McpReply(NamedTuple):
    """The answer to a call.

    Attributes:
        text: the text of the answer, or what went wrong.
        error: one of `KINDS`; ``None``: the call succeeded.
        seconds: wall seconds.
    """

    text: str
    error: str | None
    seconds: float


class McpSession:
    """An open session. Calls may come from any thread, also several at once.

    Args:
        server: how the server is reached.
        start_seconds: how long it may take to start, to greet and to list its tools.

    Attributes:
        server: as given.
        tools: the server's tools.

    Raises:
        McpError: the server cannot be started or does not speak the protocol.
        MissingDependencyError: the package ``mcp`` is not installed.
    """

    def __init__(self, server: McpServer, *, start_seconds: float = 30.0):
        if bool(server.command) + bool(server.url) + (server.here is not None) != 1:
            raise ValueError("An MCP server has one of command, url and here.")
        self.server = server
        self._sdk = _sdk()
        self._log: TextIO = io.StringIO()
        if server.command:
            self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._client: Any = None
        self._loop = background_loop()
        self._closing = asyncio.Event()
        self._ready: Future[list[ToolInfo]] = Future()
        self._task = asyncio.run_coroutine_threadsafe(self._serve(), self._loop)
        try:
            self.tools = self._ready.result(start_seconds)
        except LateError:
            self._task.cancel()
            raise self._cannot_start(f"it did not greet within {start_seconds:g} s") from None
        except McpError:
            raise
        except BaseException as error:
            raise self._cannot_start(_reason(error)) from error

    @property
    def alive(self) -> bool:
        """Whether calls can be made."""
        return self._client is not None and not self._task.done()

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float = 30.0) -> McpReply:
        """Call a tool and wait for the answer; must not be used in a coroutine (`acall` is).

        Never raises for what the server does: a failed call is a reply with an error.
        """
        started = time.monotonic()
        future = self._submit(self._call(name, dict(arguments), seconds))
        try:
            return future.result(seconds + _GRACE)
        except LateError:
            future.cancel()
            self._abandon()
            return self._reply("timeout", f"no answer within {seconds:g} s", started)

    async def acall(
        self, name: str, arguments: Mapping[str, Any], seconds: float = 30.0
    ) -> McpReply:
        """Call a tool without holding up the caller's event loop; see `call`."""
        started = time.monotonic()
        future = self._submit(self._call(name, dict(arguments), seconds))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), seconds + _GRACE)
        except asyncio.TimeoutError:
            self._abandon()
            return self._reply("timeout", f"no answer within {seconds:g} s", started)

    def close(self) -> None:
        """End the session, and the server that was started for it; may be called more than once."""
        if not self._task.done():
            self.end()
            with contextlib.suppress(LateError, asyncio.CancelledError):
                self._task.result(_END)
        self._task.cancel()
        self._log.close()

    def end(self) -> None:
        """Begin to end the session, without waiting; for what is collected as garbage."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._closing.set)

    def _submit(self, call: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    def _abandon(self) -> None:
        """Give the session up: it does not react."""
        self._client = None
        self._loop.call_soon_threadsafe(self._closing.set)

    async def _serve(self) -> None:
        """Open the session, report its tools, and keep it open; one task does all of it."""
        try:
            async with self._transport() as transport, self._sdk.Client(transport) as client:
                tools = await _list_tools(client)
                self._client = client
                self._ready.set_result(tools)
                await self._closing.wait()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(_first(error))
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._client = None

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        server = self.server
        if server.here is not None:
            yield server.here
            return
        if server.command:
            parameters = self._sdk.stdio.StdioServerParameters(
                command=server.command[0],
                args=list(server.command[1:]),
                env=dict(server.env),
                cwd=server.cwd or None,
                encoding_error_handler="replace",
            )
            yield self._sdk.stdio.stdio_client(parameters, errlog=self._log)
            return
        make_client: Callable[..., Any] = self._sdk.http.create_mcp_http_client
        async with make_client(headers=dict(server.headers)) as client:
            yield self._sdk.http.streamable_http_client(server.url, http_client=client)

    async def _call(self, name: str, arguments: dict[str, Any], seconds: float) -> McpReply:
        started = time.monotonic()
        client = self._client
        if client is None or self._task.done():
            return self._reply("server_gone", "the session is over", started)
        try:
            result = await asyncio.wait_for(client.call_tool(name, arguments), seconds)
        except asyncio.TimeoutError:
            return self._reply("timeout", f"no answer within {seconds:g} s", started)
        except Exception as error:  # of the SDK, the transport or the validation of an answer
            kind = self._sdk.kind(_first(error))
            if kind == "server_gone":
                self._abandon()
            return self._reply(kind, _reason(error), started)
        text = "\n".join(_text(block) for block in result.content)
        error_kind = "tool_error" if result.is_error else None
        return McpReply(text, error_kind, time.monotonic() - started)

    def _reply(self, kind: str, reason: str, started: float) -> McpReply:
        return McpReply(f"{KINDS[kind]}: {reason}", kind, time.monotonic() - started)

    def _cannot_start(self, reason: str) -> McpError:
        self._log.seek(0)
        printed = self._log.read()[-_LOG:].strip()
        where = " ".join(self.server.command) or self.server.url or "of this process"
        more = f" It printed: {printed}" if printed else ""
        return McpError("cannot_start", f"The MCP server {where!r} cannot be used: {reason}.{more}")


async def _list_tools(client: Any) -> list[ToolInfo]:
    tools: list[ToolInfo] = []
    cursor = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            tools.append(ToolInfo(tool.name, tool.description or "", dict(tool.input_schema)))
        cursor = page.next_cursor
        if not cursor:
            return tools
    raise McpError("protocol_error", f"The server lists its tools on more than {_PAGES} pages.")


def _text(block: Any) -> str:
    """Return the text of a part of an answer; of others their kind."""
    if block.type == "text":
        return str(block.text)
    if block.type == "resource" and hasattr(block.resource, "text"):
        return str(block.resource.text)
    return f"[{block.type}]"


def _first(error: BaseException) -> BaseException:
    """Return the first error that is not a group of errors."""
    while True:
        inner = getattr(error, "exceptions", None)
        if not inner:
            return error
        error = inner[0]


def _reason(error: BaseException) -> str:
    first = _first(error)
    return f"{type(first).__name__}: {first!s:.300}"


class _Sdk:
    """The parts of the package ``mcp`` that are used."""

    def __init__(self) -> None:
        mcp = importlib.import_module("mcp")
        self.Client: Any = mcp.Client
        self.stdio: Any = importlib.import_module("mcp.client.stdio")
        self.http: Any = importlib.import_module("mcp.client.streamable_http")
        self._closed = importlib.import_module("mcp_types").CONNECTION_CLOSED
        self._late = importlib.import_module("mcp_types").REQUEST_TIMEOUT
        self._error: Any = mcp.MCPError
        anyio = importlib.import_module("anyio")
        self._gone = (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError)

    def kind(self, error: BaseException) -> str:
        """Return which of `KINDS` an error of the SDK is."""
        if isinstance(error, self._gone) or type(error).__module__.startswith("httpx"):
            return "server_gone"
        if isinstance(error, self._error):
            code = error.error.code
            return {self._closed: "server_gone", self._late: "timeout"}.get(code, "protocol_error")
        return "protocol_error"


def _sdk() -> _Sdk:
    require_sdk()
    try:
        return _Sdk()
    except (ImportError, AttributeError) as error:
        raise MissingDependencyError(
            f"MCP needs another version of the package mcp: pip install 'gem-core[mcp]' ({error})"
        ) from error


def require_sdk() -> None:
    """Check that the package ``mcp`` is installed, without importing it.

    Raises:
        MissingDependencyError: it is not.
    """
    if importlib.util.find_spec("mcp") is None:
        raise MissingDependencyError("MCP needs the package mcp: pip install 'gem-core[mcp]'")
