"""Student's t distribution with any degrees of freedom from 1 on.

With ``t = sqrt(freedom) * tan(x)`` the density is that of ``cos(x) ** (freedom - 1)``, up to a
factor; its integral is taken numerically, to 2e-7 of the probability.
"""

from __future__ import annotations

from math import atan, exp, isinf, lgamma, pi, sqrt

import numpy as np

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


def upper_tail(t: float, freedom: float) -> float:
    """Return the probability of more than ``t``.

    Raises:
        ValueError: there is less than one degree of freedom.

    >>> round(upper_tail(2.776445, 4), 6)
    0.025
    """
    if freedom < 1:
        raise ValueError(f"{freedom} degrees of freedom are fewer than 1.")
    if t < 0:
        return 1 - upper_tail(-t, freedom)
    if isinf(t):
        return 0.0
    half = (pi / 2 - atan(t / sqrt(freedom))) / 2
    # y = pi/2 - x = half * (1 + node): the tail where the cosine is small is not a difference.
    integral = half * float(_WEIGHTS @ np.sin(half * (1 + _NODES)) ** (freedom - 1))
    return integral * exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(pi)


def quantile(probability: float, freedom: float) -> float:
    """Return the quantile of a probability from 0.5 up to less than 1, by bisection.

    Raises:
        ValueError: a number is outside of its range.

    >>> round(quantile(0.975, 4), 5)
    2.77645
    """
    if not 0.5 <= probability < 1:
        raise ValueError(f"A probability from 0.5 up to less than 1, not {probability}.")
    low, high = 0.0, 1.0
    while upper_tail(high, freedom) > 1 - probability:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        if upper_tail(middle, freedom) > 1 - probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2
