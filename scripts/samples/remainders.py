"""Remainders of products: what a small model cannot compute and a program can."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

_DIVISOR = 997  # a prime


def questions(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield different questions and their answers."""
    rng = Random(seed)
    asked: set[tuple[int, int]] = set()
    while len(asked) < count:
        a, b = rng.randint(100, 999), rng.randint(100, 999)
        if (a, b) in asked:
            continue
        asked.add((a, b))
        yield {"question": f"What is {a} * {b} modulo {_DIVISOR}?", "answer": str(a * b % _DIVISOR)}
