"""Intervals for success rates, and the figures of evaluation episodes."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from gem_core.episodes.data import Episode
from gem_core.episodes.metrics import episode_metrics

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


def wilson(successes: int, count: int, z: float = Z_95) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion (E. B. Wilson, JASA 22, 1927, eq. 1).

    ``z`` is the normal quantile of the confidence level.

    Raises:
        ValueError: the counts are impossible.

    >>> [round(x, 4) for x in wilson(8, 10)]
    [0.4902, 0.9433]
    """
    if not 0 <= successes <= count or count < 1:
        raise ValueError(f"{successes} successes of {count} is impossible.")
    share = successes / count
    spread = z * z / count
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * sqrt(share * (1 - share) / count + spread / (4 * count))
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))  # rounding


def summarise(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the common metrics of evaluation episodes and the interval of the success rate."""
    low, high = wilson(sum(e.success for e in episodes), len(episodes))
    return {**episode_metrics(episodes), "success/low": low, "success/high": high}
