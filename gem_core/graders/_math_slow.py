"""math-verify's verdict; imported in worker processes only.

Its own timeouts raise signals, which works in the main thread alone, so they are off and the pool's
deadline takes their place.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from math_verify import parse, verify

# It warns at each first call that its timeouts are off.
logging.getLogger("math_verify").setLevel(logging.ERROR)


def run(job: list[str]) -> bool:
    """Judge ``[answer, gold]``."""
    answer, gold = job
    return bool(verify(list(_gold(gold)), _parse(answer), timeout_seconds=None))


def _parse(text: str) -> list[Any]:
    # A text in which a box is left open cannot be put into one.
    parsed: list[Any] = parse(f"\\boxed{{{text}}}", parsing_timeout=None)
    return parsed


@lru_cache(maxsize=1024)
def _gold(text: str) -> tuple[Any, ...]:
    return tuple(_parse(text))
