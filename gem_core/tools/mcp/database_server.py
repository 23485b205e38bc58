"""An MCP server over a database: ``python -m gem_core.tools.mcp.database_server DATABASE``.

``DATABASE`` is the path of an SQLite file, or a URL ``postgresql://...`` (needs psycopg). It speaks
on its standard input and output, or with ``--port N`` by streamable HTTP on 127.0.0.1.

Tools: ``list_tables``, ``describe``, ``query`` (reads) and ``execute`` (one statement that inserts,
updates or deletes). Everything else is refused: other files, other statements, long queries.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from gem_core.tools.mcp.sqlite_guard import DatabaseError, SqlLimits, guard, prepare

ROWS = 50
"""Rows of an answer."""
_SECONDS = 5.0
_CHANGES = ("insert", "update", "delete", "replace", "with")
_READS = ("select", "with", "values")
_LIMITS = SqlLimits()


class Sqlite:
    """An SQLite file, opened for each call: others may replace it in between."""

    def __init__(self, path: str, limits: SqlLimits = _LIMITS):
        self.limits = limits
        self._path = path

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        rows = self.query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")[1]
        return [str(row[0]) for row in rows]

    def columns(self, table: str) -> list[tuple[str, str]]:
        """Return name and type of each column."""
        with self._open(changes=False) as connection:
            connection.set_authorizer(None)  # the statement is this one, the name only a value
            found = connection.execute(
                "SELECT name, type FROM pragma_table_info(?)", (table,)
            ).fetchall()
        return [(str(name), str(kind)) for name, kind in found]

    def query(self, statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a statement that reads; return the columns and at most `ROWS` + 1 rows."""
        with self._open(changes=False) as connection:
            cursor = connection.execute(statement)
            names = [str(column[0]) for column in cursor.description or ()]
            rows = cursor.fetchmany(ROWS + 1)
            cursor.close()
            return names, rows

    def execute(self, statement: str) -> int:
        """Run a statement that changes rows; return how many."""
        with self._open(changes=True) as connection:
            return connection.execute(statement).rowcount

    @contextlib.contextmanager
    def _open(self, *, changes: bool) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite3.connect(f"file:{self._path}?mode=rw", uri=True, timeout=_SECONDS)
        except sqlite3.Error as error:
            raise DatabaseError(str(error)) from error
        try:
            prepare(connection, self.limits)
            with guard(connection, self.limits, changes=changes):
                yield connection
        finally:
            connection.close()


class InMemory(Sqlite):
    """An SQLite database in the memory of this process, on one connection."""

    def __init__(self, connection: sqlite3.Connection, limits: SqlLimits):
        super().__init__(":memory:", limits)
        self.connection = connection

    @contextlib.contextmanager
    def _open(self, *, changes: bool) -> Iterator[sqlite3.Connection]:
        with guard(self.connection, self.limits, changes=changes):
            yield self.connection


class Postgres:
    """A database of PostgreSQL; the account that is given decides what may be done."""

    def __init__(self, url: str):
        self._url = url
        self._psycopg = importlib.import_module("psycopg")

    def tables(self) -> list[str]:
        """Return the names of the tables in the schema ``public``."""
        rows = self.query(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' "
            "ORDER BY table_name"
        )[1]
        return [str(row[0]) for row in rows]

    def columns(self, table: str) -> list[tuple[str, str]]:
        """Return name and type of each column."""
        with self._open(changes=False) as connection:
            cursor = connection.execute(
                "SELECT column_name, data_type FROM information_schema.columns "
                "WHERE table_schema = 'public' AND table_name = %s ORDER BY ordinal_position",
                (table,),
            )
            return [(str(name), str(kind)) for name, kind in cursor.fetchall()]

    def query(self, statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a statement that reads; return the columns and at most `ROWS` + 1 rows."""
        with self._open(changes=False) as connection:
            # A cursor of the server: it sends the rows that are asked for, and takes one statement.
            cursor = connection.cursor("agent")
            cursor.execute(statement)
            names = [column.name for column in cursor.description or ()]
            return names, cursor.fetchmany(ROWS + 1)

    def execute(self, statement: str) -> int:
        """Run a statement that changes rows; return how many."""
        with self._open(changes=True) as connection:
            # Prepared, it is one statement: another behind it could end the transaction.
            return int(connection.execute(statement, prepare=True).rowcount)

    @contextlib.contextmanager
    def _open(self, *, changes: bool) -> Iterator[Any]:
        try:
            with self._psycopg.connect(self._url) as connection:
                limit = int(1000 * _SECONDS)
                for name in ("statement", "lock", "idle_in_transaction_session"):
                    connection.execute(f"SET {name}_timeout = {limit}")
                if not changes:
                    connection.execute("SET TRANSACTION READ ONLY")
                yield connection
        except self._psycopg.Error as error:
            raise DatabaseError(str(error).strip()) from error


def table_text(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as text: a line of names, then a line of JSON for each row."""
    lines = [" | ".join(names)]
    lines += [json.dumps(list(row), default=str, ensure_ascii=False) for row in rows[:ROWS]]
    if len(rows) > ROWS:
        lines.append(f"[more than {ROWS} rows: ask for fewer]")
    elif not rows:
        lines.append("[no rows]")
    return "\n".join(lines)


def answer(database: Sqlite | Postgres, tool: str, **arguments: str) -> str:
    """Run a tool.

    Raises:
        DatabaseError: it was refused or failed.
    """
    if tool == "list_tables":
        return "\n".join(database.tables()) or "[no tables]"
    if tool == "describe":
        columns = database.columns(arguments["table"])
        if not columns:
            raise DatabaseError(f"there is no table {arguments['table']!r:.60}")
        return "\n".join(f"{name} {kind}" for name, kind in columns)
    statement = arguments["sql"].strip().rstrip(";")
    known = _READS if tool == "query" else _CHANGES
    first = statement.split(None, 1)[0].lower() if statement else ""
    if first not in known:
        raise DatabaseError(f"{tool} takes one statement that begins with {', '.join(known)}")
    if tool == "query":
        return table_text(*database.query(statement))
    changed = database.execute(statement)
    return f"{changed} row{'s' * (changed != 1)} changed"


def make_server(database: Sqlite | Postgres) -> Any:
    """Return the MCP server of a database."""
    mcpserver: Any = importlib.import_module("mcp.server.mcpserver")
    server = mcpserver.MCPServer("gem-core database", log_level="ERROR")

    def run(tool: str, **arguments: str) -> str:
        try:
            return answer(database, tool, **arguments)
        except DatabaseError as error:
            raise importlib.import_module("mcp.server.mcpserver.exceptions").ToolError(
                str(error)
            ) from None

    def list_tables() -> str:
        """Return the names of the tables."""
        return run("list_tables")

    def describe(table: str) -> str:
        """Return the columns of a table and their types."""
        return run("describe", table=table)

    def query(sql: str) -> str:
        """Run one SELECT statement and return its rows."""
        return run("query", sql=sql)

    def execute(sql: str) -> str:
        """Run one INSERT, UPDATE or DELETE statement."""
        return run("execute", sql=sql)

    for function in (list_tables, describe, query, execute):
        server.add_tool(function, structured_output=False)
    return server


def main() -> None:
    """Serve a database until the client goes."""
    parser = argparse.ArgumentParser(description="An MCP server over a database.")
    parser.add_argument("database", help="path of an SQLite file, or postgresql://...")
    parser.add_argument("--port", type=int, help="serve by streamable HTTP on 127.0.0.1")
    given = parser.parse_args()
    postgres = given.database.startswith(("postgresql://", "postgres://"))
    server = make_server(Postgres(given.database) if postgres else Sqlite(given.database))
    if given.port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=given.port)


if __name__ == "__main__":
    main()
