"""The database of one environment, and the MCP server in this process that serves it."""

from __future__ import annotations

import os
import sqlite3
import weakref
from typing import Any

from gem_core.envs.database.shop import LIMITS, Tables, in_memory
from gem_core.tools.mcp.database_server import InMemory, make_server
from gem_core.tools.mcp.session import McpReply, McpServer, McpSession


class Database:
    """A database in memory. Its server is made at the first call, and ends with this object."""

    def __init__(self, tables: Tables) -> None:
        self._served = InMemory(in_memory(tables), LIMITS)
        self._session: McpSession | None = None
        self._owner = os.getpid()

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, for what reads past the server."""
        return self._served.connection

    def fill(self, tables: Tables) -> None:
        """Replace the rows; the server stays.

        Raises:
            StateError: they do not fit the tables; then the old ones stay.
        """
        new = in_memory(tables)
        self._served.connection.close()
        self._served.connection = new

    def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> McpReply:
        """Call a tool of the server; a session that has ended is made again."""
        if self._session is None or not self._session.alive or self._owner != os.getpid():
            self._owner = os.getpid()  # a forked process has no event loop of its parent's
            self._session = McpSession(McpServer(here=make_server(self._served)))
            weakref.finalize(self, self._session.end)
        return self._session.call(tool, arguments, seconds)

    def close(self) -> None:
        """End the server and drop the rows."""
        if self._session is not None and self._owner == os.getpid():
            self._session.end()
        self._session = None
        self._served.connection.close()
