"""An index of a run's ``episodes.jsonl``, so that a million episodes need not be read.

The file stays as the run wrote it: one line per episode, appended only. The index is a SQLite
database with a row per episode: where its line is, and the columns that can be filtered and sorted.
It grows with the file. Each transaction holds rows and the position up to which the file is
indexed, so that a killed process loses one batch at most and two processes can share an index.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gem_core.errors import RunError

FORMAT = 1
"""Increase it when the columns change: older indexes are built again."""
BATCH_BYTES = 4_000_000
_HEAD = 4096
_TAIL = 64
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value);
CREATE TABLE episodes (
  id INTEGER PRIMARY KEY, start INTEGER, length INTEGER, step INTEGER, split TEXT, env TEXT,
  seed, grp INTEGER, idx INTEGER, turns INTEGER, reward REAL, success INTEGER, stop TEXT,
  tokens INTEGER
);
CREATE UNIQUE INDEX task ON episodes(step, split, idx) WHERE idx >= 0;
"""
_INSERT = "INSERT OR REPLACE INTO episodes VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"


class _Turn(msgspec.Struct):
    reward: float = 0.0


class _Segment(msgspec.Struct):
    spans: list[tuple[int, int, int]] = []


class _Line(msgspec.Struct):
    step: int
    split: str
    env_id: str
    stop_reason: str
    seed: int | None = None
    group: int = 0
    index: int = -1
    success: bool = False
    turns: list[_Turn] = []
    segments: list[_Segment] = []


class EpisodeIndex:
    """The index of one file of episodes.

    Attributes:
        source: the file of JSON lines; it need not exist yet.
        path: the database.
    """

    def __init__(self, source: str | Path, folder: str | Path) -> None:
        """Open the index of ``source`` in ``folder``, or make an empty one; reads no episode."""
        self.source = Path(source)
        self._counted: tuple[tuple[Any, ...], int] = ((), 0)
        key = hashlib.sha256(str(self.source.resolve()).encode()).hexdigest()[:24]
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
            Whether the index is complete up to the last whole line.
        """
        done = 0
        while max_bytes is None or done < max_bytes:
            read = self._update_once(connection)
            if not read:
                return True
            done += read
        return False

    def _update_once(self, connection: sqlite3.Connection) -> int:
        """Index one batch of lines; return its bytes, 0 where there is no whole line more."""
        try:
            file = self.source.open("rb")
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
        file.seek(position)
        batch = _whole_lines(file)
        if not batch:
            return 0
        rows, broken, lines = _rows(batch, position, int(meta["lines"]))
        connection.executemany(_INSERT, rows)
        position += len(batch)
        file.seek(0)
        head = file.read(min(_HEAD, position))
        values = {
            "position": position,
            "lines": int(meta["lines"]) + lines,
            "broken": int(meta["broken"]) + broken,
            "head": hashlib.sha256(head).hexdigest(),
            "head_bytes": len(head),
            "tail": batch[-_TAIL:].hex(),
        }
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", values.items())
        return len(batch)

    # -- reading ---------------------------------------------------------------------------------

    def state(self, connection: sqlite3.Connection) -> dict[str, int]:
        """Return the number of episodes, of lines that are not episodes, and the bytes indexed."""
        meta = _meta(connection)
        version = (meta["position"], meta["lines"], meta["tail"])
        counted, count = self._counted
        if counted != version:  # a million rows take 0.1 s to count
            count = connection.execute("SELECT count(*) FROM episodes").fetchone()[0]
            self._counted = (version, count)
        size = self.source.stat().st_size if self.source.exists() else 0
        return {
            "episodes": count,
            "broken": int(meta["broken"]),
            "indexed_bytes": int(meta["position"]),
            "bytes": size,
        }

    def record(self, connection: sqlite3.Connection, number: int) -> dict[str, Any]:
        """Return the whole line of episode ``number``.

        Raises:
            RunError: there is no such episode.
        """
        found = connection.execute(
            "SELECT start, length FROM episodes WHERE id = ?", (number,)
        ).fetchone()
        if found is None:
            raise RunError(f"{self.source} has no episode {number}; it may have been replaced.")
        with self.source.open("rb") as file:
            file.seek(found[0])
            line = file.read(found[1])
        try:
            record: dict[str, Any] = json.loads(line)
        except ValueError:
            raise RunError(f"{self.source} has changed; reload the page.") from None
        return record


def _clear(connection: sqlite3.Connection) -> None:
    for name in ("meta", "episodes"):
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


def _whole_lines(file: Any) -> bytes:
    """Return about `BATCH_BYTES`, up to the end of the last whole line; at least one line."""
    batch: bytes = file.read(BATCH_BYTES)
    while b"\n" not in batch:
        more = file.read(BATCH_BYTES)
        if not more:
            return b""
        batch += more
    return batch[: batch.rindex(b"\n") + 1]


def _rows(batch: bytes, position: int, number: int) -> tuple[list[tuple[Any, ...]], int, int]:
    """Return the rows of the episodes in ``batch``, the lines that are none, and all lines."""
    rows = []
    broken = 0
    lines = 0
    for line in _split(batch):
        number += 1
        lines += 1
        row = _row(line)
        if row is None:
            broken += bool(line.strip())
        else:
            rows.append((number, position, len(line), *row))
        position += len(line) + 1
    return rows, broken, lines


def _split(batch: bytes) -> Iterator[bytes]:
    yield from batch[:-1].split(b"\n")


_DECODER = msgspec.json.Decoder(_Line)


def _row(line: bytes) -> tuple[Any, ...] | None:
    try:
        data = _DECODER.decode(line)
    except (msgspec.DecodeError, msgspec.ValidationError):
        try:  # Python writes NaN and Infinity, which are not JSON
            data = msgspec.convert(json.loads(line), _Line)
        except (ValueError, RecursionError):
            return None
    tokens = 0
    for segment in data.segments:
        for _, start, end in segment.spans:
            tokens += end - start
    reward = 0.0
    for turn in data.turns:
        reward += turn.reward
    seed = data.seed if data.seed is None or abs(data.seed) < 2**63 else str(data.seed)
    if max(abs(data.step), abs(data.group), abs(data.index)) >= 2**63:
        return None
    return (
        data.step,
        data.split,
        data.env_id,
        seed,
        data.group,
        data.index,
        len(data.turns),
        reward,
        data.success,
        data.stop_reason,
        tokens,
    )
