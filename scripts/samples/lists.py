"""Programs about a part of a list: one operation, one part, one number."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

_OPERATIONS = {
    "sum": "sum({})",
    "largest": "max({})",
    "smallest": "min({})",
    "second largest": "sorted({})[-2]",
    "second smallest": "sorted({})[1]",
}
_PARTS = {"first": "a[:{}]", "last": "a[-{}:]"}
_NUMBERS = range(3, 33)
_LENGTHS = (34, 36)


def tasks(seed: int) -> Iterator[dict[str, Any]]:
    """Yield every task once, its tests and a program.

    One test has a growing list and one a falling list, so that every operation and every number
    changes what is printed in one of them.
    """
    rng = Random(seed)
    forms = [(op, part, n) for op in _OPERATIONS for part in _PARTS for n in _NUMBERS]
    for operation, part, number in rng.sample(forms, len(forms)):
        expression = _OPERATIONS[operation].format(_PARTS[part].format(number))
        up, down = (sorted(rng.sample(range(-99, 100), length)) for length in _LENGTHS)
        yield {
            "question": f"Read a line of integers. Print the {operation} of the {part} {number}.",
            "tests": [_test(numbers, expression) for numbers in (up, down[::-1])],
            "solution": f"a = list(map(int, input().split()))\nprint({expression})\n",
        }


def _test(numbers: list[int], expression: str) -> dict[str, str]:
    value = eval(expression, {"a": numbers})  # an expression of this module
    return {"input": " ".join(map(str, numbers)) + "\n", "output": f"{value}\n"}
