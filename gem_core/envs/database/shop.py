"""The database of the tasks: a small shop, drawn from a generator."""

from __future__ import annotations

import sqlite3
from math import isfinite
from random import Random
from typing import Any

from gem_core.errors import StateError
from gem_core.tools.mcp.sqlite_guard import SqlLimits, prepare

SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price INTEGER, stock INTEGER);
CREATE TABLE orders (
  id INTEGER PRIMARY KEY, customer_id INTEGER, product_id INTEGER, quantity INTEGER, status TEXT
);
CREATE TABLE report (label TEXT, value INTEGER);
"""
NAMES = ("Alice", "Bruno", "Carla", "David", "Elena", "Frank", "Greta", "Hugo", "Irene", "Jonas")
CITIES = ("Cairo", "Lima", "Oslo", "Tokyo")
PRODUCTS = ("anchor", "basket", "candle", "drum", "easel", "funnel", "globe", "hammer")
STATUSES = ("open", "paid", "shipped", "cancelled")

COLUMNS = {"customers": 3, "products": 4, "orders": 5, "report": 2}
"""The tables, and how many columns each has."""
LIMITS = SqlLimits(instructions=300_000, value_bytes=8_000, pages=256)
"""What one statement of an agent may use."""

Tables = dict[str, list[tuple[Any, ...]]]
"""The rows of each table."""


def draw_shop(rng: Random) -> Tables:
    """Return the rows of the tables; ``report`` is empty."""
    tables: Tables = {name: [] for name in COLUMNS}
    for number, name in enumerate(rng.sample(NAMES, 7), 1):
        tables["customers"].append((number, name, rng.choice(CITIES)))
    for number, name in enumerate(rng.sample(PRODUCTS, 6), 1):
        tables["products"].append((number, name, rng.randint(5, 90), rng.randint(0, 40)))
    for number in range(1, 21):
        customer = rng.randint(1, 6)  # the last customer has no order
        product = rng.randint(1, 6)
        status = STATUSES[number % 4]
        tables["orders"].append((number, customer, product, rng.randint(1, 9), status))
    return tables


def in_memory(tables: Tables) -> sqlite3.Connection:
    """Return a database in memory with these rows, ready for statements from outside.

    Raises:
        StateError: SQLite does not take the rows: two have one key, or they are too many.
    """
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    prepare(connection, LIMITS)
    try:
        connection.executescript(SCHEMA)
        for name, rows in tables.items():
            values = ", ".join("?" * COLUMNS[name])
            connection.executemany(f"INSERT INTO {name} VALUES ({values})", rows)
        connection.commit()
    except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
        connection.close()
        raise StateError(f"The rows of the database do not fit its tables: {error}.") from None
    return connection


def rows_of(connection: sqlite3.Connection) -> Tables:
    """Return the rows of every table, as they are stored."""
    return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in COLUMNS}


def tables_of(connection: sqlite3.Connection) -> Tables:
    """Return the rows of every table, in an order that does not depend on how they were made."""
    return {name: sorted(rows, key=repr) for name, rows in rows_of(connection).items()}


def write_rows(tables: Tables) -> dict[str, list[list[Any]]]:
    """Return rows as JSON data; what JSON has no form for is an object with one key."""
    return {name: [list(map(_write, row)) for row in rows] for name, rows in tables.items()}


def read_rows(stored: Any) -> Tables:
    """Return the rows that `write_rows` gave.

    Raises:
        StateError: the data are not the rows of these tables.
    """
    if not isinstance(stored, dict) or set(stored) != set(COLUMNS):
        raise StateError(f"The database of a state has the tables {', '.join(COLUMNS)}.")
    return {name: [_read_row(name, row) for row in _list(name, stored[name])] for name in COLUMNS}


def _list(name: str, rows: Any) -> list[Any]:
    if not isinstance(rows, list):
        raise StateError(f"The rows of the table {name} are a list.")
    return rows


def _read_row(name: str, row: Any) -> tuple[Any, ...]:
    if not isinstance(row, list | tuple) or len(row) != COLUMNS[name]:
        raise StateError(f"A row of the table {name} has {COLUMNS[name]} values.")
    return tuple(_read(value) for value in row)


def _write(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, float) and not isfinite(value):
        return {"real": str(value)}
    return value


def _read(value: Any) -> Any:
    if value is None or (type(value) in (int, float, str)):
        return value
    try:
        if isinstance(value, dict) and len(value) == 1:
            if "bytes" in value:
                return bytes.fromhex(value["bytes"])
            if value.get("real") in ("inf", "-inf"):
                return float(value["real"])
    except (TypeError, ValueError):
        pass
    raise StateError(f"A value of a row is a number, a text or null, not {value!r:.60}.")
