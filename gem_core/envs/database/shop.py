"""The database of the tasks: a small shop, drawn from a generator."""

from __future__ import annotations

import sqlite3
from random import Random
from typing import Any

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

Tables = dict[str, list[tuple[Any, ...]]]


def draw_shop(rng: Random) -> str:
    """Return a script that makes the tables and fills them; ``report`` is empty."""
    lines = [SCHEMA]
    for number, name in enumerate(rng.sample(NAMES, 7), 1):
        lines.append(_insert("customers", number, name, rng.choice(CITIES)))
    for number, name in enumerate(rng.sample(PRODUCTS, 6), 1):
        lines.append(_insert("products", number, name, rng.randint(5, 90), rng.randint(0, 40)))
    for number in range(1, 21):
        customer = rng.randint(1, 6)  # the last customer has no order
        product = rng.randint(1, 6)
        status = STATUSES[number % 4]
        lines.append(_insert("orders", number, customer, product, rng.randint(1, 9), status))
    return "\n".join(lines)


def _insert(table: str, *values: Any) -> str:
    shown = ", ".join(f"'{value}'" if isinstance(value, str) else str(value) for value in values)
    return f"INSERT INTO {table} VALUES ({shown});"


def in_memory(script: str) -> sqlite3.Connection:
    """Return a database in memory, made by a script."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(script)
    return connection


def tables_of(connection: sqlite3.Connection) -> Tables:
    """Return the rows of every table, in an order that does not depend on how they were made."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        str(name): sorted(connection.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr)
        for (name,) in sorted(names)
    }
