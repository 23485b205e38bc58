"""Products of invented brands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """A kind of products.

    Attributes:
        name: the category of its products.
        price: the price around which those of the products vary.
        attributes: the attributes of which each product has two.
        options: name of an option -> its values.
    """

    name: str
    price: int
    attributes: tuple[str, ...]
    options: dict[str, tuple[str, ...]]


KINDS = (
    Kind(
        "desk lamp",
        18,
        ("dimmable", "foldable", "usb powered", "wooden"),
        {"color": ("black", "white", "green")},
    ),
    Kind(
        "backpack",
        35,
        ("waterproof", "lightweight", "padded", "recycled"),
        {"color": ("navy", "grey", "red"), "size": ("small", "large")},
    ),
    Kind(
        "water bottle",
        12,
        ("insulated", "leakproof", "dishwasher safe", "recycled"),
        {"color": ("blue", "pink", "steel"), "size": ("500 ml", "750 ml")},
    ),
    Kind(
        "running shoes",
        60,
        ("lightweight", "waterproof", "vegan", "cushioned"),
        {"color": ("white", "black"), "size": ("38", "41", "44")},
    ),
    Kind(
        "coffee grinder",
        40,
        ("quiet", "manual", "dishwasher safe", "adjustable"),
        {"color": ("black", "steel")},
    ),
    Kind(
        "yoga mat",
        25,
        ("non-slip", "recycled", "foldable", "extra thick"),
        {"color": ("purple", "green", "grey")},
    ),
    Kind(
        "headphones",
        70,
        ("wireless", "noise cancelling", "foldable", "lightweight"),
        {"color": ("black", "white")},
    ),
    Kind(
        "rain jacket",
        55,
        ("waterproof", "breathable", "recycled", "hooded"),
        {"color": ("yellow", "navy"), "size": ("s", "m", "l")},
    ),
    Kind(
        "notebook",
        8,
        ("dotted", "hardcover", "recycled", "waterproof"),
        {"size": ("a5", "a4")},
    ),
)
BRANDS = ("Aldermoor", "Brightwell", "Corvane", "Dunlin", "Eskby", "Fennick", "Grovely", "Hestia")


def products() -> Iterator[dict[str, Any]]:
    """Yield products that differ in attributes and price within their kind."""
    r = Random(21)
    for position, kind in enumerate(KINDS):
        pairs = list(combinations(kind.attributes, 2))
        for number, brand in enumerate(BRANDS):
            attributes = list(pairs[number % len(pairs)])
            yield {
                "id": f"P{position * 10 + number:03d}",
                "name": f"{brand} {' '.join(attributes)} {kind.name}",
                "category": kind.name,
                "price": round(kind.price * r.uniform(0.7, 1.6), 2),
                "attributes": attributes,
                "options": {name: list(values) for name, values in kind.options.items()},
                "description": f"A {kind.name} by {brand}: {attributes[0]} and {attributes[1]}.",
            }
