"""Verdicts that need no algebra: numbers written plainly, and answers equal to the letter.

Each verdict given here is the one that math-verify gives; everything else is left to it. The
tests compare the two on fixed and on random pairs.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_INTEGER = re.compile(r"-?\d{1,15}", re.ASCII)
_NUMBER = re.compile(
    r"""(?P<sign>-?)(?:
        (?P<whole>\d{1,9} | [1-9]\d{0,2}(?:,\d{3}){1,3}) (?P<decimals>\.\d{1,6})?
      | \\[dt]?frac\{(?P<top>-?\d{1,9})\}\{(?P<bottom>[1-9]\d{0,8})\}
      | (?P<above>\d{1,9})/(?P<below>[1-9]\d{0,8})
    )""",
    re.VERBOSE | re.ASCII,
)
# What math-verify keeps as text at least; it takes words like "m^2" for units and drops them.
_KEPT = re.compile(r"-?\(?(?:\d|\\[dt]?frac\{|\\sqrt)[\w\\{}^+\-*/()., =]*", re.ASCII)
_CLEARLY = Fraction(1, 1000)


def fast_verdict(answer: str, gold: str) -> bool | None:
    """Return whether the answer is right, or ``None`` where that takes algebra.

    >>> fast_verdict("0.5", "1/2"), fast_verdict("7", "8"), fast_verdict("x+1", "1+x")
    (True, False, None)
    """
    if answer == gold:
        return True if _KEPT.fullmatch(answer) else None
    if _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(gold):
        return int(answer) == int(gold)
    x = number(answer)
    if x is None:
        return None
    y = number(gold)
    if y is None:
        return None
    if x == y:
        return True
    # Near misses are compared after rounding, which is math-verify's business.
    return False if abs(x - y) > _CLEARLY else None


@lru_cache(maxsize=4096)
def number(text: str) -> Fraction | None:
    r"""Return the number that a text plainly is.

    >>> number("1,234.5"), number(r"-\frac{1}{3}"), number("1,23")
    (Fraction(2469, 2), Fraction(-1, 3), None)
    """
    if len(text) > 40:
        return None
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    sign, whole, decimals, top, bottom, above, below = found.groups()
    if top is not None:
        value = Fraction(int(top), int(bottom))
    elif above is not None:
        value = Fraction(int(above), int(below))
    else:
        value = Fraction(whole.replace(",", "") + (decimals or ""))
    return -value if sign else value
