"""An index of a run's file of episodes, so that a million need not be read.

The file (`gem_core.runs.directory.episode_store`) stays as the run wrote it. The index is a SQLite
database with a row per episode: where its line is, and the columns that can be filtered and sorted.
It grows with the file. Each transaction holds rows and the position up to which the file is
indexed, so that a killed process loses one batch at most and two processes can share an index.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gem_core.errors import RunError
from gem_core.runs.directory import episode_store as store
from gem_core.runs.directory.episode_columns import COLUMNS, Columns, columns_of
from gem_core.runs.directory.files import open_file
from gem_view.records import SHOWN_BYTES

FORMAT = 4
"""Increase it when the columns change: older indexes are built again."""
BATCH_BYTES = 4_000_000
NO_EPISODES = {"episodes": 0, "broken": 0, "indexed_bytes": 0, "bytes": 0, "end": "whole"}
"""The state of the index of a run that has logged no episode; such an index is not made."""
TEXTS = ("split", "env", "stop")
"""Columns of text with few values, which are kept."""
_PLACES = {name: 4 + COLUMNS.index(name) for name in TEXTS}
_TEXT = 200
_HEAD = 4096
_TAIL = 64
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value);
CREATE TABLE episodes (
  id INTEGER PRIMARY KEY, block INTEGER, start INTEGER, length INTEGER, step INTEGER,
  split TEXT, env TEXT, seed, grp INTEGER, idx INTEGER, turns INTEGER, reward REAL,
  success INTEGER, stop TEXT, tokens INTEGER
);
CREATE TABLE choices (name TEXT, value TEXT, PRIMARY KEY (name, value)) WITHOUT ROWID;
CREATE UNIQUE INDEX task ON episodes(step, split, idx) WHERE idx >= 0;
"""
_INSERT = "INSERT OR REPLACE INTO episodes VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"


class EpisodeIndex:
    """The index of one file of episodes.

    Attributes:
        source: the file of episodes; it need not exist yet.
        in_blocks: whether it is a `store.FILE`, and not the plain lines of an older version.
        path: the database.
    """

    def __init__(self, source: str | Path, folder: str | Path) -> None:
        """Open the index of ``source`` in ``folder``, or make an empty one; reads no episode."""
        self.source = Path(source)
        self.in_blocks = self.source.suffix == ".gz"
        self._counted: tuple[tuple[Any, ...], int] = ((), 0)
        place = (
            self.source.parent.resolve() / self.source.name
        )  # the file may be a link in a circle
        key = hashlib.sha256(os.fsencode(place)).hexdigest()[:24]
        self.path = Path(folder) / f"{key}.sqlite"
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        connection = self.connect()
        try:
            self._prepare(connection)
        finally:
            connection.close()

    def connect(self) -> sqlite3.Connection:
        """Return a new connection; each thread needs its own."""
        connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] != FORMAT:
            _clear(connection)
        connection.execute("COMMIT")

    # -- building --------------------------------------------------------------------------------

    def update(self, connection: sqlite3.Connection, max_bytes: int | None = None) -> bool:
        """Index what the file has beyond the index, in transactions of `BATCH_BYTES`.

        Args:
            connection: from `connect`.
            max_bytes: stop after this many bytes; ``None`` = at the end of the file.

        Returns:
            Whether the index is complete up to the last whole line or block.
        """
        done = 0
        while max_bytes is None or done < max_bytes:
            read = self._update_once(connection)
            if not read:
                return True
            done += read
        return False

    def _update_once(self, connection: sqlite3.Connection) -> int:
        """Index one batch; return its bytes, 0 where there is no whole line or block more."""
        try:
            file = open_file(self.source)
        except FileNotFoundError:
            return 0
        with file:
            connection.execute("BEGIN IMMEDIATE")
            try:
                read = self._index_batch(connection, file)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        return read

    def _index_batch(self, connection: sqlite3.Connection, file: Any) -> int:
        meta = _meta(connection)
        if not _is_same_file(file, meta):
            _clear(connection)
            meta = {"position": 0, "broken": 0, "lines": 0}
        position = int(meta["position"])
        read = _read_blocks if self.in_blocks else _read_lines
        batch = read(file, position, int(meta["lines"]))
        if batch.end == position:
            return 0
        connection.executemany(_INSERT, batch.rows)
        values = {(name, row[place]) for row in batch.rows for name, place in _PLACES.items()}
        connection.executemany("INSERT OR IGNORE INTO choices VALUES (?,?)", values)
        file.seek(0)
        head = file.read(min(_HEAD, batch.end))
        file.seek(max(0, batch.end - _TAIL))
        meta = {
            **meta,
            "position": batch.end,
            "lines": int(meta["lines"]) + batch.lines,
            "broken": int(meta["broken"]) + batch.broken,
            "head": hashlib.sha256(head).hexdigest(),
            "head_bytes": len(head),
            "tail": file.read(min(_TAIL, batch.end)).hex(),
        }
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", meta.items())
        return batch.end - position

    # -- reading ---------------------------------------------------------------------------------

    def state(self, connection: sqlite3.Connection) -> dict[str, Any]:
        """Return the number of episodes, of lines that are not episodes, and the bytes indexed.

        ``end`` is ``unfinished`` where the beginning of an episode follows, which may still be
        written; ``damaged`` where something else does; otherwise ``whole``.
        """
        meta = _meta(connection)
        version = (meta["position"], meta["lines"], meta["tail"])
        counted, count = self._counted
        if counted != version:  # a million rows take 0.1 s to count
            count = connection.execute("SELECT count(*) FROM episodes").fetchone()[0]
            self._counted = (version, count)
        position = int(meta["position"])
        size, end = self._end(position)
        return {
            "episodes": count,
            "broken": int(meta["broken"]),
            "indexed_bytes": position,
            "bytes": size,
            "end": end,
        }

    def _end(self, position: int) -> tuple[int, str]:
        """Return the size of the file, and what is at ``position``."""
        try:
            file = open_file(self.source)
        except FileNotFoundError:
            return 0, "whole"
        with file:
            size = os.fstat(file.fileno()).st_size
            if self.in_blocks:
                return size, store.state_at(file, position)
            file.seek(position)
            line = file.readline(store.MAX_LINE + 1)
            if len(line) > store.MAX_LINE:
                return size, "damaged"
            return size, "unfinished" if line and not line.endswith(b"\n") else "whole"

    def record(self, connection: sqlite3.Connection, number: int) -> dict[str, Any]:
        """Return the whole line of episode ``number``.

        Raises:
            RunError: there is no such episode.
        """
        found = connection.execute(
            "SELECT block, start, length FROM episodes WHERE id = ?", (number,)
        ).fetchone()
        if found is None:
            raise RunError(f"{self.source} has no episode {number}; it may have been replaced.")
        block, start, length = found
        where = f"Episode {number}"
        if length > SHOWN_BYTES:
            raise RunError(f"{where} has {length:,} bytes; at most {SHOWN_BYTES:,} are shown.")
        try:
            file = open_file(self.source)
        except FileNotFoundError:
            raise RunError(f"{self.source.name} was deleted; reload the page.") from None
        with file:
            if self.in_blocks:
                line = store.read_block(file, block).text()[start : start + length]
            else:
                file.seek(start)
                line = file.read(length)
        return store.parse_record(line, f"{where}, if {self.source.name} has not changed,")


def _clear(connection: sqlite3.Connection) -> None:
    for name in ("meta", "episodes", "choices"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    for statement in _SCHEMA.strip().split(";"):
        if statement.strip():
            connection.execute(statement)
    start = {"position": 0, "lines": 0, "broken": 0, "head": "", "head_bytes": 0, "tail": ""}
    connection.executemany("INSERT INTO meta VALUES (?,?)", start.items())
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def _meta(connection: sqlite3.Connection) -> dict[str, Any]:
    return dict(connection.execute("SELECT key, value FROM meta"))


def _is_same_file(file: Any, meta: dict[str, Any]) -> bool:
    """Whether the file still begins, and ends at the indexed position, as it did."""
    position = int(meta["position"])
    if position == 0:
        return True
    if os.fstat(file.fileno()).st_size < position:
        return False
    file.seek(0)
    if hashlib.sha256(file.read(int(meta["head_bytes"]))).hexdigest() != meta["head"]:
        return False
    tail = bytes.fromhex(meta["tail"])
    file.seek(position - len(tail))
    return bool(file.read(len(tail)) == tail)


class _Batch(NamedTuple):
    """Rows of the index, the end of what they are made from, its lines, and what is no episode."""

    rows: list[tuple[Any, ...]]
    end: int
    lines: int
    broken: int


def _read_blocks(file: Any, position: int, number: int) -> _Batch:
    """Return the rows of some blocks: of a whole number, and of `BATCH_BYTES` or a little more."""
    rows: list[tuple[Any, ...]] = []
    first = number
    end = position
    broken = 0
    for block in store.scan(file, position):
        broken += block.damaged
        start = 0
        for length, columns in _rows(block):
            number += 1
            if columns is None:
                broken += bool(length)
            else:
                rows.append((number, block.start, start, length, *_short(columns)))
            start += length + 1
        end = block.end
        if end - position >= BATCH_BYTES:
            break
    return _Batch(rows, end, number - first, broken)


def _rows(block: store.Block) -> list[store.Row]:
    """Return the rows of a block; of a damaged one, that each of its lines is no episode."""
    try:
        return block.rows()
    except RunError:
        return [(1, None)] * block.lines


def _short(columns: Columns) -> Iterator[Any]:
    """Yield columns for the list, in which no text is endless."""
    return (value[:_TEXT] if isinstance(value, str) else value for value in columns)


def _read_lines(file: Any, position: int, number: int) -> _Batch:
    """Return the rows of about `BATCH_BYTES` of plain lines; at least of one, if it is whole."""
    file.seek(position)
    text = _whole_lines(file)
    rows: list[tuple[Any, ...]] = []
    first = number
    broken = 0
    for line in text[:-1].split(b"\n") if text else ():
        number += 1
        columns = columns_of(line)
        if columns is None:
            broken += bool(line.strip())
        else:
            rows.append((number, None, position, len(line), *_short(columns)))
        position += len(line) + 1
    return _Batch(rows, position, number - first, broken)


def _whole_lines(file: Any) -> bytes:
    """Return about `BATCH_BYTES`, up to the end of the last whole line; at least one line.

    Nothing is returned where a line is longer than `store.MAX_LINE`: what follows is not read.
    """
    batch: bytes = file.read(BATCH_BYTES)
    while b"\n" not in batch:
        if len(batch) > store.MAX_LINE:
            return b""
        more = file.read(BATCH_BYTES)
        if not more:
            return b""
        batch += more
    return batch[: batch.rindex(b"\n") + 1]
