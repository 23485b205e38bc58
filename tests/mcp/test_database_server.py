"""The MCP server over a database: what its tools return, and what they refuse."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gem_core.tools.mcp import McpServer, McpSession
from gem_core.tools.mcp.database_server import DatabaseError, Sqlite, answer
from gem_core.tools.mcp.sqlite_guard import SqlLimits


@pytest.fixture
def database(tmp_path: Path) -> Sqlite:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO things VALUES (?, ?)", [(i, "x") for i in range(60)])
    connection.close()
    return Sqlite(str(path))


def test_the_tools(database: Sqlite) -> None:
    assert answer(database, "list_tables") == "things"
    assert answer(database, "describe", table="things") == "id INTEGER\nname TEXT"
    assert answer(database, "query", sql="SELECT * FROM things WHERE id < 2;") == (
        'id | name\n[0, "x"]\n[1, "x"]'
    )
    assert answer(database, "query", sql="SELECT * FROM things WHERE id < 0").endswith("[no rows]")
    assert "more than 50 rows" in answer(database, "query", sql="SELECT * FROM things")
    assert answer(database, "execute", sql="DELETE FROM things WHERE id > 0") == "59 rows changed"
    assert answer(database, "query", sql="SELECT count(*) FROM things").endswith("[1]")


REFUSED = [
    ("query", "DELETE FROM things"),
    ("query", "WITH x AS (SELECT 1) DELETE FROM things"),
    ("query", "SELECT 1; DELETE FROM things"),
    ("query", "PRAGMA table_info(things)"),
    ("query", "SELECT load_extension('x')"),
    ("query", "SELECT length(zeroblob(100000000))"),
    ("query", ""),
    ("execute", "DROP TABLE things"),
    ("execute", "ATTACH DATABASE '{other}' AS other"),
    ("execute", "VACUUM INTO '{other}'"),
    ("execute", "CREATE TABLE more (x)"),
    ("execute", "PRAGMA journal_mode = DELETE"),
    ("execute", "SELECT 1"),
    ("execute", "INSERT INTO things SELECT 1, zeroblob(2000000)"),
]


@pytest.mark.parametrize(("tool", "sql"), REFUSED)
def test_everything_else_is_refused(database: Sqlite, tmp_path: Path, tool: str, sql: str) -> None:
    other = tmp_path / "other.db"
    with pytest.raises(DatabaseError):
        answer(database, tool, sql=sql.format(other=other))
    assert not other.exists()
    assert answer(database, "query", sql="SELECT count(*) FROM things").endswith("[60]")


def test_an_endless_query_ends(database: Sqlite) -> None:
    database.limits = SqlLimits(seconds=0.2)
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"
    with pytest.raises(DatabaseError, match="interrupted"):
        answer(database, "query", sql=endless)


def test_by_streamable_http_too(database: Sqlite) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "gem_core.tools.mcp.database_server", database._path]
    process = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.DEVNULL)
    try:
        session = connected(f"http://127.0.0.1:{port}/mcp")
        assert session.call("list_tables", {}).text == "things"
        assert session.call("query", {"sql": "x"}).error == "tool_error"
        assert asyncio.run(session.acall("list_tables", {})).error is None
        session.close()
        gone = connected(f"http://127.0.0.1:{port}/mcp")
        process.kill()
        process.wait()
        assert gone.call("list_tables", {}, 5).error == "server_gone"
        gone.close()
    finally:
        process.kill()
        process.wait()


def connected(url: str) -> McpSession:
    """Return a session with a server that may still be starting."""
    from gem_core.tools.mcp import McpError

    until = time.monotonic() + 30
    while True:
        try:
            return McpSession(McpServer(url=url))
        except McpError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
