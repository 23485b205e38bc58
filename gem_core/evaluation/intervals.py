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
from gem_core.evaluation.student import quantile

LEVEL = 0.95
"""Of every interval."""
RESAMPLES = 4000
"""Bootstrap samples of an interval."""
_CELLS = 2_000_000
"""Numbers that are held at a time."""


def clustered_interval(
    groups: Sequence[Sequence[float]],
    *,
    proportion: bool = False,
    seed: int = 0,
) -> tuple[float, float]:
    """Return a confidence interval of the mean over tasks, of all environments together.

    The percentiles of the bootstrap are those of T. Hesterberg ("What teachers should know about
    the bootstrap", 2015, section 4): wider than the plain ones, which cover too little for few
    tasks. If all tasks have the same value, the bootstrap has no width; for a proportion, which is
    then 0 or 1, the interval is Wilson's, with one trial per task. ``groups`` has the tasks' means,
    one list per environment.

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
        z = NormalDist().inv_cdf((1 + LEVEL) / 2)
        return wilson(count if first else 0, count, z)
    freedom = max(1, count - len(values))
    tail = NormalDist().cdf(-quantile((1 + LEVEL) / 2, freedom) * sqrt(count / freedom))
    means = bootstrap_means(values, seed)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def bootstrap_means(groups: Sequence[Any], seed: int) -> np.ndarray[Any, Any]:
    """Return `RESAMPLES` means over tasks drawn with replacement, each environment by itself."""
    rng = np.random.default_rng(seed)
    total = np.zeros(RESAMPLES)
    for values in groups:
        for first, last in _chunks(RESAMPLES, len(values)):
            drawn = rng.integers(0, len(values), size=(last - first, len(values)))
            total[first:last] += np.asarray(values)[drawn].sum(axis=1)
    return total / sum(len(values) for values in groups)


def _chunks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    step = max(1, _CELLS // columns)
    for first in range(0, rows, step):
        yield first, min(rows, first + step)
