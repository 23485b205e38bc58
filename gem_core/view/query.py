"""Filter, sort and search the episodes of an index, a page at a time."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from array import array
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from gem_core.errors import RunError
from gem_core.view.index import EpisodeIndex

COLUMNS = (
    "id",
    "step",
    "split",
    "env",
    "seed",
    "grp",
    "idx",
    "turns",
    "reward",
    "success",
    "stop",
    "tokens",
)
"""What a list of episodes shows; every column can be sorted."""
EQUAL = ("split", "env", "stop", "success", "seed", "idx", "grp")
"""Columns that a filter can fix."""
TEXTS = ("split", "env", "stop")
"""Columns of text with few values."""
RANGES = ("step", "reward", "turns", "tokens")
"""Columns that a filter can bound: ``reward_min``, ``reward_max``."""
PAGE = 200
SEARCH_SECONDS = 4.0
_CHUNK = 8_000_000
_MAX_HITS = 2000
_KEPT = 8


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
        numbers, complete = self._ordered(connection, options, state["indexed_bytes"])
        wanted = numbers[offset : offset + limit]
        marks = ",".join("?" * len(wanted))
        query = f"SELECT {','.join(COLUMNS)} FROM episodes WHERE id IN ({marks})"
        by_number = {row[0]: row for row in connection.execute(query, wanted.tolist())}
        rows = [by_number[number] for number in wanted if number in by_number]
        return {"total": len(numbers), "complete": complete, "columns": COLUMNS, "rows": rows}

    def _ordered(
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
        values = {}
        for name in TEXTS:
            query = f"SELECT DISTINCT {name} FROM episodes LIMIT 100"
            values[name] = sorted(row[0] for row in connection.execute(query))
        return values


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
    deadline = time.monotonic() + SEARCH_SECONDS
    with index.source.open("rb") as file:
        position = 0
        while position < end:
            if time.monotonic() > deadline or len(hits) >= _MAX_HITS:
                return hits, False
            file.seek(position)
            chunk = file.read(min(_CHUNK, end - position))
            place = chunk.find(needle)
            while place >= 0:
                line_end = _line_at(index, connection, position + place, text, hits)
                if time.monotonic() > deadline or len(hits) >= _MAX_HITS:
                    return hits, False
                place = chunk.find(needle, max(line_end - position, place + 1))
            if len(chunk) < _CHUNK:
                break
            position += len(chunk) - len(needle) + 1
    return hits, True


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
    if any(text in shown for shown in shown_texts(index.record(connection, row[0]))):
        hits.add(row[0])
    return int(row[1] + row[2])


def shown_texts(record: Mapping[str, Any]) -> list[str]:
    """Return the texts of an episode: observations, actions, the end."""
    texts = [record.get("final_observation") or "", record.get("error") or ""]
    for turn in record.get("turns", ()):
        texts += [turn["observation"], turn["action"]]
        suffix = turn.get("info", {}).get("suffix")
        if isinstance(suffix, str):
            texts.append(suffix)
    return texts


def _number(options: Mapping[str, str], name: str) -> float | int:
    try:
        value = float(options[name])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RunError(f"{name}: {options[name]!r} is not a number.")
    return int(options[name]) if options[name].lstrip("-").isdigit() else value


def _whole(options: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(options.get(name, default))
    except ValueError:
        raise RunError(f"{name}: {options[name]!r} is not a whole number.") from None
