"""The verdict of math-verify. This module is imported only in worker processes."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from latex2sympy2_extended.antlr_parser import PSParser
from math_verify import parse, verify

if not hasattr(PSParser.AtomContext, "FUNC_GAMMA"):
    # The parser for antlr 4.9.3 forgets it, and what the reader asks for after it, such as 50\%.
    PSParser.AtomContext.FUNC_GAMMA = lambda _: None

# It warns at its first call that its timeouts are off.
logging.getLogger("math_verify").setLevel(logging.ERROR)


def run(job: list[str]) -> bool:
    """Grade ``[answer, gold]``.

    The timeouts of math-verify are off: they need signals, and the pool has a deadline.
    """
    answer, gold = job
    return bool(verify(list(_parse(gold)), list(_parse(answer)), timeout_seconds=None))


@lru_cache(maxsize=512)  # benchmarks/throughput/graders.py counts on no more
def _parse(text: str) -> tuple[Any, ...]:
    # A text with an unclosed box cannot be put into a box.
    return tuple(parse(f"\\boxed{{{text}}}", parsing_timeout=None))
