"""Sums of the digits of large powers: what a small model cannot compute and a program can."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any


def questions(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield different questions and their answers, numbers of three digits."""
    rng = Random(seed)
    powers = [(base, exponent) for base in range(101, 1000) for exponent in range(20, 61)]
    powers = [(base, exponent) for base, exponent in powers if base % 10]
    for base, exponent in rng.sample(powers, count):
        digits = sum(map(int, str(base**exponent)))
        question = f"What is the sum of the digits of {base} ** {exponent}?"
        yield {"question": question, "answer": str(digits)}
