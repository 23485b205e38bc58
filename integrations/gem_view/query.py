"""Filter, sort and search the episodes of an index, a page at a time."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

from gem_core.errors import RunError
from gem_core.runs.directory import episode_columns as columns
from gem_core.runs.directory import episode_store as store
from gem_core.runs.directory.files import open_file
from gem_view.index import TEXTS, EpisodeIndex
from gem_view.records import SHOWN_BYTES

COLUMNS = ("id", *columns.COLUMNS)
"""What a list of episodes shows; every column can be sorted."""
EQUAL = ("split", "env", "stop", "success", "seed", "idx", "grp")
"""Columns that a filter can fix."""
RANGES = ("step", "reward", "turns", "tokens")
"""Columns that a filter can bound: ``reward_min``, ``reward_max``."""
PAGE = 200
SEARCH_SECONDS = 10.0
_CHUNK = 8_000_000
_MAX_HITS = 2000
_KEPT = 8
_AS_OPENED = {"sort": "id", "order": "asc"}
_THREADS = 2
_AHEAD = 32  # blocks
_AHEAD_BYTES = 64 << 20


class Queries:
    """The queries on one index; keeps the order of the last ones, 8 bytes per episode each."""

    def __init__(self, index: EpisodeIndex) -> None:
        self.index = index
        self._orders: OrderedDict[tuple[Any, ...], tuple[array[int], bool]] = OrderedDict()

    def page(self, connection: sqlite3.Connection, options: Mapping[str, str]) -> dict[str, Any]:
        """Return a page of the episodes that ``options`` select.

        Args:
            connection: of the calling thread.
            options: filters (`EQUAL`, `RANGES` with ``_min`` or ``_max``, ``text``), ``sort``,
                ``order`` (``asc`` or ``desc``), ``offset`` and ``limit``.

        Returns:
            ``total``, ``complete`` (whether a text search reached the end of the file), ``columns``
            and ``rows``.

        Raises:
            RunError: an option has a wrong value.
        """
        state = self.index.state(connection)
        offset = max(0, _whole(options, "offset", 0))
        limit = min(max(0, _whole(options, "limit", PAGE)), PAGE)
        asked = {
            k: v for k, v in options.items() if v != "" and k not in ("run", "limit", "offset")
        }
        if not offset and asked.items() <= _AS_OPENED.items():  # without the order of a million
            query = f"SELECT {','.join(COLUMNS)} FROM episodes ORDER BY id LIMIT ?"
            rows = connection.execute(query, (limit,)).fetchall()
            return {"total": state["episodes"], "complete": True, "columns": COLUMNS, "rows": rows}
        numbers, complete = self._sort(connection, options, state["indexed_bytes"])
        wanted = numbers[offset : offset + limit]
        marks = ",".join("?" * len(wanted))
        query = f"SELECT {','.join(COLUMNS)} FROM episodes WHERE id IN ({marks})"
        by_number = {row[0]: row for row in connection.execute(query, wanted.tolist())}
        rows = [by_number[number] for number in wanted if number in by_number]
        return {"total": len(numbers), "complete": complete, "columns": COLUMNS, "rows": rows}

    def _sort(
        self, connection: sqlite3.Connection, options: Mapping[str, str], version: int
    ) -> tuple[array[int], bool]:
        """Return the numbers of the selected episodes in order; computed once per query."""
        condition, values = conditions(options)
        sort = options.get("sort", "id")
        descending = options.get("order", "asc") == "desc"
        if sort not in COLUMNS:
            raise RunError(f"sort: {sort!r} is not a column; choose one of {', '.join(COLUMNS)}.")
        text = options.get("text", "")
        key = (condition, tuple(values), sort, descending, text, version)
        kept = self._orders.get(key)
        if kept is None:
            direction = "DESC" if descending else "ASC"
            query = f"SELECT id FROM episodes WHERE {condition} ORDER BY {sort} {direction}, id"
            numbers = array("q", (row[0] for row in connection.execute(query, values)))
            complete = True
            if text:
                hits, complete = search(self.index, connection, text)
                numbers = array("q", (n for n in numbers if n in hits))
            kept = numbers, complete
            self._orders[key] = kept
            while len(self._orders) > _KEPT:
                self._orders.popitem(last=False)
        return kept

    def choices(self, connection: sqlite3.Connection) -> dict[str, list[Any]]:
        """Return the values that occur in the columns with few values."""
        query = "SELECT value FROM choices WHERE name = ? ORDER BY value LIMIT 100"
        return {name: [row[0] for row in connection.execute(query, (name,))] for name in TEXTS}


def conditions(options: Mapping[str, str]) -> tuple[str, list[Any]]:
    """Return the SQL condition of the filters in ``options``, and its values.

    >>> conditions({"split": "eval", "reward_min": "0.5"})
    ('split = ? AND reward >= ?', ['eval', 0.5])
    """
    parts = []
    values: list[Any] = []
    for name in EQUAL:
        if options.get(name, "") != "":
            parts.append(f"{name} = ?")
            values.append(options[name] if name in TEXTS else _number(options, name))
    for name in RANGES:
        for end, sign in (("min", ">="), ("max", "<=")):
            if options.get(f"{name}_{end}", "") != "":
                parts.append(f"{name} {sign} ?")
                values.append(_number(options, f"{name}_{end}"))
    return " AND ".join(parts) or "1", values


def search(index: EpisodeIndex, connection: sqlite3.Connection, text: str) -> tuple[set[int], bool]:
    """Return the episodes in which ``text`` occurs, and whether the whole file was searched.

    The file is read in pieces, for at most `SEARCH_SECONDS`; a hit counts if the text is in an
    observation, an action, the final observation or the error. Upper and lower case differ.
    """
    needle = json.dumps(text)[1:-1].encode()
    end = int(connection.execute("SELECT value FROM meta WHERE key = 'position'").fetchone()[0])
    hits: set[int] = set()
    if not index.source.exists():
        return hits, True
    search_file = _search_blocks if index.in_blocks else _search_lines
    complete = search_file(index, connection, _Wanted(text, needle, end, hits))
    return hits, complete


class _Wanted:
    """A search.

    Args:
        text: what is searched for.
        needle: its bytes in a line of JSON.
        end: end of what is indexed.
        hits: receives the numbers of the episodes.
    """

    def __init__(self, text: str, needle: bytes, end: int, hits: set[int]) -> None:
        self.text = text
        self.needle = needle
        self.end = end
        self.hits = hits
        self._deadline = time.monotonic() + SEARCH_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether it took too long, or there are hits enough."""
        return time.monotonic() > self._deadline or len(self.hits) >= _MAX_HITS


def _search_blocks(index: EpisodeIndex, connection: sqlite3.Connection, wanted: _Wanted) -> bool:
    """Search block after block; return whether the end was reached."""
    number = 1
    query = "SELECT count(*) FROM episodes WHERE id = ?"
    with open_file(index.source) as file, ThreadPoolExecutor(_THREADS) as pool:
        for block, text in _decompress(pool, file, wanted.end):
            if wanted.is_over:
                return False
            place = text.find(wanted.needle)
            while place >= 0:
                start = text.rfind(b"\n", 0, place) + 1
                end = text.find(b"\n", place)
                hit = number + text.count(b"\n", 0, place)
                is_shown = _shows(text[start:end], wanted.text)
                # An episode that was played again is counted once, at its last line.
                if is_shown and connection.execute(query, (hit,)).fetchone()[0]:
                    wanted.hits.add(hit)
                place = text.find(wanted.needle, end)
            number += block.lines
    return True


def _decompress(
    pool: ThreadPoolExecutor, file: BinaryIO, end: int
) -> Iterator[tuple[store.Block, bytes]]:
    """Yield the blocks before ``end`` and their lines; some are decompressed ahead."""
    ahead: deque[tuple[store.Block, Future[bytes]]] = deque()
    size = 0
    for block in store.scan(file):
        if block.start >= end:
            break
        ahead.append((block, pool.submit(_text, block)))
        size += block.size
        while len(ahead) > _AHEAD or (size > _AHEAD_BYTES and ahead):
            ready, text = ahead.popleft()
            size -= ready.size
            yield ready, text.result()
    for ready, text in ahead:
        yield ready, text.result()


def _text(block: store.Block) -> bytes:
    """Return the lines of a block; of a damaged one, as many empty ones."""
    try:
        return block.text()
    except RunError:
        return b"\n" * block.lines


def _search_lines(index: EpisodeIndex, connection: sqlite3.Connection, wanted: _Wanted) -> bool:
    """Search the plain lines of an older version; return whether the end was reached."""
    needle = wanted.needle
    end = wanted.end
    with open_file(index.source) as file:
        position = 0
        while position < end:
            if wanted.is_over:
                return False
            file.seek(position)
            chunk = file.read(min(_CHUNK, end - position))
            place = chunk.find(needle)
            while place >= 0:
                line_end = _line_at(index, connection, position + place, wanted.text, wanted.hits)
                if wanted.is_over:
                    return False
                place = chunk.find(needle, max(line_end - position, place + 1))
            if len(chunk) < _CHUNK:
                break
            position += len(chunk) - len(needle) + 1
    return True


def _line_at(
    index: EpisodeIndex, connection: sqlite3.Connection, place: int, text: str, hits: set[int]
) -> int:
    """Add the episode whose line has the byte ``place`` if it shows ``text``; return its end."""
    low, high = 0, connection.execute("SELECT max(id) FROM episodes").fetchone()[0] or 0
    while low < high:  # ids and starts have the same order
        middle = (low + high + 1) // 2
        row = connection.execute(
            "SELECT id, start FROM episodes WHERE id <= ? ORDER BY id DESC LIMIT 1", (middle,)
        ).fetchone()
        if row is None or row[1] <= place:
            low = middle
        else:
            high = row[0] - 1
    row = connection.execute(
        "SELECT id, start, length FROM episodes WHERE id <= ? ORDER BY id DESC LIMIT 1", (low,)
    ).fetchone()
    if row is None or place >= row[1] + row[2]:
        return place + 1  # a line that is no episode, or one that was played again
    try:
        record = index.record(connection, row[0])
    except RunError:
        record = {}
    if any(text in shown for shown in texts_of(record)):
        hits.add(row[0])
    return int(row[1] + row[2])


def _shows(line: bytes, text: str) -> bool:
    """Whether the episode in a line shows ``text``; a line that is none shows nothing."""
    if len(line) > SHOWN_BYTES:
        return False
    try:
        record = store.parse_record(line, "")
    except RunError:
        return False
    return any(text in shown for shown in texts_of(record))


def texts_of(record: Mapping[str, Any]) -> list[str]:
    """Return the texts of an episode: observations, actions, the end."""
    texts = [record.get("final_observation"), record.get("error")]
    for turn in record.get("turns", ()):
        info = turn.get("info")
        suffix = info.get("suffix") if isinstance(info, Mapping) else None
        texts += [turn.get("observation"), turn.get("action"), suffix]
    return [text for text in texts if isinstance(text, str)]


def _number(options: Mapping[str, str], name: str) -> float | int:
    try:
        value = float(options[name])
    except ValueError:
        value = math.nan
    if not -(2.0**63) <= value < 2.0**63:  # NaN is not, either
        raise RunError(f"{name}: {options[name]!r} is not a number.")
    return int(options[name]) if options[name].lstrip("-").isdigit() else value


def _whole(options: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(options.get(name, default))
    except ValueError:
        raise RunError(f"{name}: {options[name]!r} is not a whole number.") from None
