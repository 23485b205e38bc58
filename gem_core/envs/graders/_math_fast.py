"""Verdicts without algebra, in this process and in well under a millisecond.

Plain numbers and identical texts come first, because they are most frequent, then what
``_math_answers`` understands. Each verdict is the one that math-verify gives; everything else is
left to it. The tests compare the two on fixed and on random pairs.
"""

from __future__ import annotations

import re

from gem_core.envs.graders import _math_answers
from gem_core.envs.graders._math_numbers import CLEARLY, number

_INTEGER = re.compile(r"-?\d{1,15}", re.ASCII)
# Texts that math-verify does not drop; it takes words like "m^2" for units and drops them.
_KEPT = re.compile(r"-?\(?(?:\d|\\[dt]?frac\{|\\sqrt)[\w\\{}^+\-*/()., =]*", re.ASCII)


def fast_verdict(answer: str, gold: str) -> bool | None:
    """Return whether the answer is right, or ``None`` if that takes algebra.

    >>> fast_verdict("0.5", "1/2"), fast_verdict("7", "8"), fast_verdict("|x|", "x")
    (True, False, None)
    """
    if answer == gold and _KEPT.fullmatch(answer):
        return True
    if _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(gold):
        return int(answer) == int(gold)
    value = number(answer)
    gold_value = None if value is None else number(gold)
    if value is None or gold_value is None:
        return _math_answers.verdict(answer, gold)
    if value == gold_value:
        return True
    # math-verify compares values that are close to each other after rounding.
    return False if abs(value - gold_value) > CLEARLY else None
