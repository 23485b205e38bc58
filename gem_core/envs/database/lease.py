"""A database file and the MCP server that serves it, lent to one episode at a time."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
import threading
import weakref
from typing import Any

from gem_core.tools.mcp.session import McpReply, McpServer, McpSession

_MOST_IDLE = 16
_PROGRAM = "gem_core.tools.mcp.database_server"
_MEMORY = "/dev/shm"


class Database:
    """A file in a private folder, and a server process that has it open at each call."""

    def __init__(self) -> None:
        parent = _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else None
        self._folder = tempfile.mkdtemp(prefix="gem-core-mcp-", dir=parent)
        self._path = os.path.join(self._folder, "shop.db")
        self._session: McpSession | None = None
        self._finalizer = weakref.finalize(self, shutil.rmtree, self._folder, True)

    def fill(self, script: str) -> None:
        """Replace the content by what a script makes."""
        new = f"{self._path}.new"
        connection = sqlite3.connect(new)
        try:
            connection.execute("PRAGMA synchronous = OFF")
            connection.executescript(script)
            connection.commit()
        finally:
            connection.close()
        os.replace(new, self._path)

    def open(self) -> sqlite3.Connection:
        """Return a connection that reads, past the server."""
        return sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)

    def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> McpReply:
        """Call a tool of the server; one that has ended is started again."""
        if self._session is None or not self._session.alive:
            self.stop()
            command = (sys.executable, "-m", _PROGRAM, self._path)
            self._session = McpSession(McpServer(command, env=_environment()))
        return self._session.call(tool, arguments, seconds)

    @property
    def usable(self) -> bool:
        """Whether another episode may have it."""
        return self._session is None or self._session.alive

    def stop(self) -> None:
        """End the server."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def close(self) -> None:
        """End the server and remove the file."""
        self.stop()
        self._finalizer()


def _environment() -> tuple[tuple[str, str], ...]:
    """Return what the server needs to import this package as this process does."""
    return (("PYTHONPATH", os.pathsep.join(path for path in sys.path if path)),)


class _Pool:
    """Databases that nobody uses; those of a forked parent are left alone."""

    def __init__(self) -> None:
        self._idle: list[Database] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def take(self) -> Database:
        with self._lock:
            if os.getpid() != self._owner:
                self._idle = []
                self._owner = os.getpid()
            return self._idle.pop() if self._idle else Database()

    def give_back(self, database: Database, owner: int) -> None:
        if os.getpid() != owner:
            return
        with self._lock:
            if database.usable and len(self._idle) < _MOST_IDLE:
                self._idle.append(database)
                return
        database.close()


_pool = _Pool()


def lend(user: object) -> Database:
    """Return a database for an object; it comes back when the object is gone."""
    database = _pool.take()
    weakref.finalize(user, _pool.give_back, database, os.getpid())
    return database
