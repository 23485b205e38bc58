"""Programs of one formula: the smallest task in which a model writes a program that is run."""

from __future__ import annotations

from collections.abc import Iterator
from operator import add, mul, sub
from random import Random
from typing import Any

_SIGNS = {"plus": ("+", add), "minus": ("-", sub), "times": ("*", mul)}
_LARGEST = 150


def tasks(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield different tasks, their tests and a program."""
    rng = Random(seed)
    formulas = [(word, number) for word in _SIGNS for number in range(2, _LARGEST)]
    for word, number in rng.sample(formulas, count):
        sign, operation = _SIGNS[word]
        inputs = (rng.randint(10, 99), rng.randint(-99, -10))
        tests = [{"input": f"{n}\n", "output": f"{operation(n, number)}\n"} for n in inputs]
        yield {
            "question": f"Read an integer n. Print n {word} {number}.",
            "tests": tests,
            "solution": f"n = int(input())\nprint(n {sign} {number})\n",
        }
