"""Success over several baselines and seeds in one figure, with its interval.

Definitions of R. Agarwal et al. ("Deep reinforcement learning at the edge of the statistical
precipice", NeurIPS 2021): interquartile mean, performance profile, probability of improvement, and
the stratified bootstrap, which draws the seeds of each baseline by themselves. They are those of
its package rliable 1.2.0, which would bring statsmodels, arch, pandas and seaborn (500 MB) for
these few lines; tests hold figures that it gave.

Tables have shape (seeds, baselines), one success rate in each place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from gem_core.errors import GemError

RESAMPLES = 2000
"""Bootstrap samples of an interval, as in the paper."""
Table: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


def interquartile_mean(scores: Table) -> float:
    """Return the mean of the middle half of all scores.

    A quarter of the scores, rounded down, is left out at either end.

    >>> interquartile_mean(np.array([[0.0, 0.4], [0.6, 1.0]]))
    0.5
    """
    ordered = np.sort(scores, axis=None)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def performance_profile(scores: Table, thresholds: Sequence[float]) -> list[float]:
    """Return the share of scores above each threshold.

    >>> performance_profile(np.array([[0.0, 0.4], [0.6, 1.0]]), [0.3, 0.6])
    [0.75, 0.25]
    """
    return [float((scores > threshold).mean()) for threshold in thresholds]


def probability_of_improvement(ours: Table, theirs: Table) -> float:
    """Return the chance that a run of ours beats one of theirs, mean over the baselines.

    A tie counts half, as in the statistic of Mann and Whitney. Both have the same baselines; the
    number of seeds may differ.

    Raises:
        GemError: they have other baselines.

    >>> probability_of_improvement(np.array([[0.5], [0.7]]), np.array([[0.5], [0.6]]))
    0.625
    """
    if ours.shape[1] != theirs.shape[1]:
        raise GemError(f"{ours.shape[1]} baselines cannot be compared with {theirs.shape[1]}.")
    pairs = ours[:, None, :] - theirs[None, :, :]
    return float(((pairs > 0) + (pairs == 0) / 2).mean())


def stratified_interval(
    statistic: Callable[..., float],
    *tables: Table,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the interval of a statistic, by the percentiles of the stratified bootstrap.

    Raises:
        GemError: a table has one seed, of which no interval over seeds can be given.
    """
    if any(len(table) < 2 for table in tables):
        raise GemError("An interval over seeds needs at least two seeds; one says nothing of them.")
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(resamples):
        values.append(statistic(*(_resample(table, rng) for table in tables)))
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _resample(table: Table, rng: np.random.Generator) -> Table:
    """Draw as many seeds of each baseline as there are, with replacement."""
    rows = np.asarray(rng.integers(0, len(table), size=table.shape))
    return np.take_along_axis(table, rows, axis=0)
