"""What a statement from outside may do on an SQLite connection: the guard of all of them."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

_READING = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_TRANSACTION,
)
_CHANGING = (*_READING, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE)
_SECRET_FUNCTIONS = ("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer")
_LOOK = 1000  # instructions between two looks at the limits
_PATTERN = 256  # characters of a pattern of LIKE: the search may take their square
HEAP_MB = 256
"""Memory of all SQLite connections of a process together, where it is bounded."""
_HAS_LIMITS = hasattr(sqlite3.Connection, "setlimit")  # Python 3.11
_one = threading.Lock()


class DatabaseError(Exception):
    """A statement that was not run, or not to its end; the message is for the agent."""


class SqlLimits(NamedTuple):
    """What one statement may use.

    Attributes:
        seconds: wall seconds.
        instructions: of SQLite's virtual machine; the same on every machine, unlike seconds.
            ``None``: as many as the seconds allow.
        value_bytes: size of a value, and of a row.
        pages: size of the database, in pages of 4 KB.
    """

    seconds: float = 5.0
    instructions: int | None = None
    value_bytes: int = 1_000_000
    pages: int = 4000


def prepare(connection: sqlite3.Connection, limits: SqlLimits) -> None:
    """Bound sizes on a connection; call it before anything from outside reaches it.

    Temporary tables stay in memory, so that no statement makes a file. Before Python 3.11 a value
    cannot be bounded on a connection: there, SQLite's memory of the whole process is (`HEAP_MB`).
    """
    connection.execute(f"PRAGMA max_page_count = {limits.pages}")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.text_factory = _text
    if _HAS_LIMITS:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.value_bytes)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _PATTERN)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    else:
        bound_heap(connection)


def bound_heap(connection: sqlite3.Connection) -> None:
    """Bound the memory of all connections of this process by `HEAP_MB`; it cannot be raised."""
    connection.execute(f"PRAGMA hard_heap_limit = {HEAP_MB << 20}")


@contextlib.contextmanager
def guard(
    connection: sqlite3.Connection, limits: SqlLimits, *, changes: bool
) -> Iterator[sqlite3.Connection]:
    """Lend a prepared connection for one statement from outside.

    It may read, and with ``changes`` change, rows; nothing else: no other files, no schema, no
    settings. What it changed is committed, or undone after an error. One statement of a process
    runs at a time, so that the memory of one is the memory of all.

    Raises:
        DatabaseError: the statement was refused, failed, or passed a limit.
    """
    with _one:
        connection.set_authorizer(_authorizer(_CHANGING if changes else _READING))
        connection.set_progress_handler(_watch(limits), _LOOK)
        try:
            yield connection
            connection.commit()
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            _undo(connection)
            raise DatabaseError(str(error)) from error
        except MemoryError as error:
            _undo(connection)
            raise DatabaseError("out of memory") from error
        finally:
            connection.set_progress_handler(None, 0)
            connection.set_authorizer(None)


def _undo(connection: sqlite3.Connection) -> None:
    connection.set_progress_handler(None, 0)  # a statement past its limit is undone past it
    connection.rollback()


def _watch(limits: SqlLimits) -> Any:
    until = time.monotonic() + limits.seconds
    looks = 0
    most = limits.instructions

    def over() -> bool:
        nonlocal looks
        looks += 1
        return time.monotonic() > until or (most is not None and looks * _LOOK > most)

    return over


def _authorizer(allowed: tuple[int, ...]) -> Any:
    def decide(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        secret = action == sqlite3.SQLITE_FUNCTION and second in _SECRET_FUNCTIONS
        return sqlite3.SQLITE_OK if action in allowed and not secret else sqlite3.SQLITE_DENY

    return decide


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
