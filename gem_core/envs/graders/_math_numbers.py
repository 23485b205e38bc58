"""Numbers in plain notation: integers, decimals, fractions."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_NUMBER = re.compile(
    r"""(?P<sign>-?)(?:
        (?P<whole>\d{1,9} | [1-9]\d{0,2}(?:,\d{3}){1,3}) (?P<decimals>\.\d{1,6})?
      | \\[dt]?frac\{(?P<top>-?\d{1,9})\}\{(?P<bottom>[1-9]\d{0,8})\}
      | (?P<above>\d{1,9})/(?P<below>[1-9]\d{0,8})
    )""",
    re.VERBOSE | re.ASCII,
)


CLEARLY = Fraction(2, 1_000_000)
"""Values that differ by more than this also differ after rounding to math-verify's six places."""


@lru_cache(maxsize=4096)
def number(text: str) -> Fraction | None:
    r"""Return the number that a text is in plain notation, or ``None``.

    >>> number("1,234.5"), number(r"-\frac{1}{3}"), number("1,23")
    (Fraction(2469, 2), Fraction(-1, 3), None)
    """
    if len(text) > 40:
        return None
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    sign, whole, decimals, top, bottom, above, below = match.groups()
    if top is not None:
        value = Fraction(int(top), int(bottom))
    elif above is not None:
        value = Fraction(int(above), int(below))
    else:
        value = Fraction(whole.replace(",", "") + (decimals or ""))
    return -value if sign else value
