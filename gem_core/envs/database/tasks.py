"""The tasks: what is to be done, and the statements that do it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from gem_core.envs.database.shop import CITIES, Tables, in_memory
from gem_core.envs.task_table import task_table


class DatabaseProblem(NamedTuple):
    """One drawn task.

    Attributes:
        text: the goal, as the agent reads it.
        solution: statements that reach it. The goal is reached when all tables have the rows that
            they have after these, in any order.
    """

    text: str
    solution: Sequence[str]


def _row(db: sqlite3.Connection, rng: Random, table: str, where: str = "1") -> tuple[object, ...]:
    rows = db.execute(f"SELECT * FROM {table} WHERE {where} ORDER BY id").fetchall()
    chosen: tuple[object, ...] = rng.choice(rows)
    return chosen


def insert_customer(rng: Random, db: sqlite3.Connection) -> DatabaseProblem:
    """Add a customer."""
    name = rng.choice(["Karin", "Louis", "Maria", "Nils"])
    city = rng.choice(CITIES)
    number = rng.randint(50, 99)
    return DatabaseProblem(
        f"Add a customer called {name} from {city} with the id {number}.",
        [f"INSERT INTO customers VALUES ({number}, '{name}', '{city}')"],
    )


def insert_order(rng: Random, db: sqlite3.Connection) -> DatabaseProblem:
    """Add an order; the ids have to be looked up."""
    customer = _row(db, rng, "customers")
    product = _row(db, rng, "products")
    number = rng.randint(50, 99)
    quantity = rng.randint(1, 9)
    return DatabaseProblem(
        f"{customer[1]} orders {quantity} pieces of the product {product[1]}. Add the order with "
        f"the id {number} and the status open.",
        [f"INSERT INTO orders VALUES ({number}, {customer[0]}, {product[0]}, {quantity}, 'open')"],
    )


def update_price(rng: Random, db: sqlite3.Connection) -> DatabaseProblem:
    """Change the price of a product."""
    product = _row(db, rng, "products")
    more = rng.randint(2, 20)
    return DatabaseProblem(
        f"The price of the product {product[1]} rises by {more}. Change it.",
        [f"UPDATE products SET price = price + {more} WHERE id = {product[0]}"],
    )


def restock(rng: Random, db: sqlite3.Connection) -> DatabaseProblem:
    """Fill the stock of the products that have little left."""
    stocks = sorted(row[0] for row in db.execute("SELECT stock FROM products"))
    limit = stocks[2] + 1
    return DatabaseProblem(
        f"Set the stock of every product that has fewer than {limit} pieces left to {limit + 30}.",
        [f"UPDATE products SET stock = {limit + 30} WHERE stock < {limit}"],
    )


def ship_orders(rng: Random, db: sqlite3.Connection) -> DatabaseProblem:
    """Change the orders of the customers of a city."""
    cities = db.execute(
        "SELECT DISTINCT city FROM customers JOIN orders ON orders.customer_id = customers.id "
        "WHERE status = 'paid' ORDER BY city"
    ).fetchall()
    city = rng.choice(cities)[0]
    return DatabaseProblem(
        f"All orders with the status paid of customers from {city} have been shipped: set their "
        "status to shipped.",
        [
            "UPDATE orders SET status = 'shipped' WHERE status = 'paid' AND customer_id IN "
            f"(SELECT id FROM customers WHERE city = '{city}')"
        ],
    )


def delete_cancelled(rng: Random, db: sqlite3.Connection) -> DatabaseProblem:
    """Delete the cancelled orders of a customer."""
    number = rng.choice(
        db.execute(
            "SELECT DISTINCT customer_id FROM orders WHERE status = 'cancelled' ORDER BY 1"
        ).fetchall()
    )[0]
    name = db.execute("SELECT name FROM customers WHERE id = ?", (number,)).fetchone()[0]
    return DatabaseProblem(
        f"Delete the cancelled orders of {name}.",
        [f"DELETE FROM orders WHERE status = 'cancelled' AND customer_id = {number}"],
    )


def delete_without_orders(rng: Random, db: sqlite3.Connection) -> DatabaseProblem:
    """Delete the customers that never ordered anything."""
    return DatabaseProblem(
        "Delete every customer who has no order at all.",
        ["DELETE FROM customers WHERE id NOT IN (SELECT customer_id FROM orders)"],
    )


def delete_product(rng: Random, db: sqlite3.Connection) -> DatabaseProblem:
    """Delete a product and its orders."""
    product = _row(db, rng, "products", "id IN (SELECT product_id FROM orders)")
    return DatabaseProblem(
        f"The product {product[1]} is no longer sold. Delete it, and all its orders.",
        [
            f"DELETE FROM orders WHERE product_id = {product[0]}",
            f"DELETE FROM products WHERE id = {product[0]}",
        ],
    )


def report_cities(rng: Random, db: sqlite3.Connection) -> DatabaseProblem:
    """Count the customers of each city."""
    return DatabaseProblem(
        "Write the number of customers of each city to the table report: one row for each city "
        "that has customers, with the city as label and the number as value.",
        ["INSERT INTO report SELECT city, count(*) FROM customers GROUP BY city"],
    )


def report_revenue(rng: Random, db: sqlite3.Connection) -> DatabaseProblem:
    """Add up what each product has earned."""
    status = rng.choice(["paid", "shipped"])
    return DatabaseProblem(
        "The revenue of an order is its quantity times the price of its product. Write the revenue "
        f"of all orders with the status {status} together to the table report, as one row with the "
        f"label {status}.",
        [
            f"INSERT INTO report SELECT '{status}', sum(quantity * price) FROM orders "
            f"JOIN products ON products.id = product_id WHERE status = '{status}'"
        ],
    )


def report_best(rng: Random, db: sqlite3.Connection) -> DatabaseProblem:
    """Find the customers with the most pieces ordered."""
    return DatabaseProblem(
        "Which customers have ordered at least 15 pieces in all their orders together? Write a row "
        "for each to the table report, with the customer's name as label and the pieces as value.",
        [
            "INSERT INTO report SELECT name, sum(quantity) FROM customers "
            "JOIN orders ON customer_id = customers.id GROUP BY customers.id "
            "HAVING sum(quantity) >= 15"
        ],
    )


TASKS = task_table(
    {
        "insert": (insert_customer, insert_order),
        "update": (update_price, restock, ship_orders),
        "delete": (delete_cancelled, delete_without_orders, delete_product),
        "report": (report_cities, report_revenue, report_best),
    }
)
"""Name -> task."""


def make_expected(tables: Tables, problem: DatabaseProblem) -> sqlite3.Connection:
    """Return the database as it must be at the end."""
    connection = in_memory(tables)
    for statement in problem.solution:
        connection.execute(statement)
    return connection
