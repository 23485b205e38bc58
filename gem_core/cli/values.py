"""Types of arguments: numbers that are checked before a command begins."""

from __future__ import annotations

import argparse
import math


def positive(text: str) -> int:
    """Read a whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def port(text: str) -> int:
    """Read the number of a port; 0 is a free one.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    number = _whole(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port, 0 to 65535")
    return number


def positive_seconds(text: str) -> float:
    """Read a positive, finite number of seconds.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return number


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
