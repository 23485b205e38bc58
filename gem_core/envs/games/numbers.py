"""Whole numbers in answers, however long."""

from __future__ import annotations

import re
from sys import maxsize
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gem_core.env.parsing import Parser

_MOST_DIGITS = 4300
"""Longest number that Python, and so GEM, can read."""
_LONG_NUMBER = re.compile(rf"\d{{{_MOST_DIGITS + 1}}}")


def parse_int(text: str) -> int | None:
    """Return the integer that ``text`` is, or ``None``; never slow, whatever the text.

    A number of more than 4,300 digits, leading zeros not counted, becomes ``sys.maxsize``.

    >>> parse_int("-7"), parse_int("007"), parse_int("7.5"), parse_int("9" * 9999) == maxsize
    (-7, 7, None, True)
    """
    if len(text) <= _MOST_DIGITS:
        try:
            return int(text)
        except ValueError:
            return None
    text = text.strip()
    digits = text[1:] if text[:1] in "+-" else text
    if not digits.isdecimal():
        return None
    digits = digits.lstrip("0") or "0"
    size = int(digits) if len(digits) <= _MOST_DIGITS else maxsize
    return -size if text[0] == "-" else size


_SMALL = {str(n): n for n in range(100)}


def split_parts(answer: str, count: int) -> list[str] | None:
    """Return the parts of an answer, with spaces or else commas between them.

    ``None``: there are not ``count`` of them.

    >>> split_parts("1 2", 2), split_parts("1,2", 2), split_parts("1 2", 3)
    (['1', '2'], ['1', '2'], None)
    """
    parts = answer.split()
    if len(parts) != count:
        parts = answer.replace(",", " ").split()
    return parts if len(parts) == count else None


def parse_ints(parts: Sequence[str]) -> list[int] | None:
    """Return the integers that all of the texts are, commas around them aside, or ``None``."""
    numbers = [_SMALL.get(part) for part in parts]
    if None in numbers:
        numbers = [parse_int(part.strip(",")) for part in parts]
    read = [number for number in numbers if number is not None]
    return read if len(read) == len(parts) else None


def without_long_numbers(parser: Parser, text: str) -> str | None:
    """Return what a parser finds, but no number that is too long for Python, and so for GEM."""
    answer = parser(text)
    return None if answer is None or _LONG_NUMBER.search(answer) else answer
