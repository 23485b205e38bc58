"""The power of the test of agreement: the smallest deficit that it would find, by simulation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

ALPHA = 0.05
POWER = 0.8
_TABLES = 400
_SHUFFLES = 400
_STEP = 0.01

FloatArray = npt.NDArray[np.float64]


def smallest_deficit(
    table: Sequence[Sequence[float]], power: float = POWER, alpha: float = ALPHA
) -> float | None:
    """Return the smallest deficit of one trainer that the test would have found.

    Tables of as many seeds and trainers are drawn from a normal distribution whose spread is that
    of the results around their seeds' means (the test shuffles within seeds, so differences between
    seeds do not matter). One trainer is made worse by the deficit, and the permutation test of
    `gem_compare.agreement` is run on each table. Draws are seeded.

    Args:
        table: final success, a row per seed, in each a figure per trainer.
        power: share of the simulated tables in which the deficit is found.
        alpha: the test finds something where its p-value is at most this.

    Returns:
        The deficit, in steps of 0.01; ``None`` if not even a deficit of 1 would be found.
    """
    noise = _simulate_noise(np.array(table, dtype=np.float64))
    if _estimate_power(noise, 1.0, alpha) < power:
        return None
    low = 0
    high = round(1 / _STEP)
    while high - low > 1:
        middle = (low + high) // 2
        if _estimate_power(noise, middle * _STEP, alpha) >= power:
            high = middle
        else:
            low = middle
    return round(high * _STEP, 2)


def _simulate_noise(table: FloatArray) -> FloatArray:
    """Draw tables without a difference, float64 [tables, seeds, trainers]."""
    spread = np.sqrt(table.var(axis=1, ddof=1).mean())
    rng = np.random.default_rng(0)
    return rng.normal(0, spread, size=(_TABLES, *table.shape))


def _estimate_power(noise: FloatArray, deficit: float, alpha: float) -> float:
    """Return the share of tables in which ``deficit`` of the first trainer is found."""
    tables = noise.copy()
    tables[:, :, 0] -= deficit
    rng = np.random.default_rng(1)
    reached = np.zeros(len(tables))
    observed = _spread(tables)
    for _ in range(_SHUFFLES):
        shuffled = rng.permuted(tables, axis=2)
        reached += _spread(shuffled) >= observed - 1e-9
    return float(((1 + reached) / (1 + _SHUFFLES) <= alpha).mean())


def _spread(tables: FloatArray) -> FloatArray:
    """Return the statistic of the test: squared deviations of the trainers' sums, [tables]."""
    totals = tables.sum(axis=1)
    deviations: FloatArray = totals - totals.mean(axis=1, keepdims=True)
    statistic: FloatArray = (deviations**2).sum(axis=1)
    return statistic
