"""Numbers written plainly: integers, decimals, fractions."""

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


#: Values that differ by more differ however they are rounded, which math-verify does to six places.
CLEARLY = Fraction(2, 1_000_000)


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
