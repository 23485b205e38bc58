"""Confidence intervals of means over tasks, from a bootstrap that resamples whole tasks.

Several samples of one task are not independent, so the task is the unit: its samples are first
averaged. The tasks of each environment are resampled by themselves, because the environments are
chosen and not drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from gem_core.evaluation.stats import wilson

RESAMPLES = 4000
"""Bootstrap samples of an interval."""
_CELLS = 2_000_000
"""Numbers that are held at a time."""


def clustered_interval(
    groups: Sequence[Sequence[float]],
    level: float = 0.95,
    *,
    proportion: bool = False,
    seed: int = 0,
) -> tuple[float, float]:
    """Return a confidence interval of the mean over tasks, of all environments together.

    The percentiles of the bootstrap are those of T. Hesterberg ("What teachers should know about
    the bootstrap", 2015, section 4): wider than the plain ones, which cover too little for few
    tasks. If all tasks have the same value, the bootstrap has no width; for a proportion, which is
    then 0 or 1, the interval is Wilson's, with one trial per task.

    Args:
        groups: the tasks' means, one list per environment.
        level: the confidence level.
        proportion: whether the values are shares, from 0 to 1.
        seed: of the bootstrap.

    Raises:
        ValueError: there is no task.
    """
    values = [np.asarray(group, dtype=float) for group in groups if len(group)]
    count = sum(len(group) for group in values)
    if count == 0:
        raise ValueError("An interval needs at least one task.")
    everything = np.concatenate(values)
    first = float(everything[0])
    if np.all(everything == first):
        if not proportion or first not in (0.0, 1.0):
            return first, first
        z = NormalDist().inv_cdf((1 + level) / 2)
        return wilson(count if first else 0, count, z)
    freedom = max(1, count - len(values))
    tail = NormalDist().cdf(-_t_quantile((1 + level) / 2, freedom) * sqrt(count / freedom))
    means = bootstrap_means(values, seed=seed)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def bootstrap_means(
    groups: Sequence[Any], resamples: int = RESAMPLES, *, seed: int = 0
) -> np.ndarray[Any, Any]:
    """Return means over tasks drawn with replacement, each environment by itself.

    Args:
        groups: the tasks' values, one non-empty array per environment.
        resamples: number of means.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    total = np.zeros(resamples)
    for values in groups:
        for first, last in _chunks(resamples, len(values)):
            drawn = rng.integers(0, len(values), size=(last - first, len(values)))
            total[first:last] += np.asarray(values)[drawn].sum(axis=1)
    return total / sum(len(values) for values in groups)


def _chunks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    step = max(1, _CELLS // columns)
    for first in range(0, rows, step):
        yield first, min(rows, first + step)


def _t_quantile(probability: float, freedom: int) -> float:
    """Return a quantile of Student's t distribution, upper half.

    Exact for one and two degrees of freedom, else G. W. Hill's approximation (CACM 13, 1970,
    algorithm 396), whose relative error is below 1e-4 from three degrees on.
    """
    two_sided = 2 * (1 - probability)
    if freedom == 1:
        return float(np.tan(np.pi / 2 * (1 - two_sided)))
    if freedom == 2:
        return sqrt(2 / (two_sided * (2 - two_sided)) - 2)
    return _hill(two_sided, freedom)


def _hill(two_sided: float, n: int) -> float:
    """Hill's algorithm 396 for ``n`` > 2 degrees of freedom, in the letters of the paper."""
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * sqrt(a * np.pi / 2) * n
    y = (d * two_sided) ** (2 / n)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(two_sided / 2)
        y = x**2
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = float(np.expm1(a * y**2))
    else:
        inner = (1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y
        y = (inner - 1) * (n + 1) / (n + 2) + 1 / y
    return sqrt(n * y)
