"""Batch statistics that stay right on constant batches, in float64 and over many ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gem_core.advantages._arrays import FloatArray, IntArray
from gem_core.advantages.batch import TurnBatch
from gem_core.errors import AdvantageError

Reduce = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""Elementwise sum of a float64 array over all ranks; every rank gets the sum."""

FLOOR = 1e-8
RELATIVE_FLOOR = 1e-12  # of |mean|: what float64 rounding can leave of a constant
MAX_ENVS = 2**16


def identity(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ``array``: the `Reduce` of a single process."""
    return array


class Moments(NamedTuple):
    """Number of elements, mean and standard deviation of each cell, float64 [cells]."""

    n: FloatArray
    mean: FloatArray
    std: FloatArray


def moments(
    x: FloatArray,
    cell: IntArray | None = None,
    cells: int = 1,
    *,
    reduce: Reduce = identity,
    ddof: int = 0,
) -> Moments:
    """Compute two-pass moments of ``x`` [N] per cell, over all ranks.

    Two reductions, always, also for N = 0: count and sum, then the deviations and their squares.
    The sum of the deviations corrects the rounding of the mean, so a constant keeps std ~ 0
    whatever its value (E[x^2] - E[x]^2 does not). An empty cell has mean and std 0.

    Args:
        x: float64 [N].
        cell: int64 [N] in ``0 .. cells - 1``; ``None`` is one cell for everything.
        cells: Number of cells, the same on every rank.
        reduce: Sum over ranks.
        ddof: 0 for the population std, 1 for the unbiased one (a single element has std 0).
    """
    if ddof not in (0, 1):
        raise AdvantageError(f"ddof must be 0 (population) or 1 (unbiased), got {ddof!r}.")
    if cell is None:
        cell = np.zeros(x.shape[0], dtype=np.int64)

    def totals(*weights: FloatArray) -> list[FloatArray]:
        sums = [sums_by(cell, w, cells) for w in weights]
        return np.split(reduced(np.concatenate(sums), reduce), len(sums))

    count, total = totals(np.ones_like(x), x)
    n = np.maximum(count, 1.0)
    mean = total / n
    deviation = x - mean[cell]
    shift, squares = totals(deviation, deviation * deviation)
    variance = np.maximum(squares - shift * shift / n, 0.0) / np.maximum(count - ddof, 1.0)
    return Moments(count, mean + shift / n, np.sqrt(variance))


def sums_by(cell: npt.NDArray[Any], weights: FloatArray, cells: int) -> FloatArray:
    """Sum ``weights`` [N] per cell, float64 [cells] (bincount gives integers for N = 0)."""
    return np.bincount(cell, weights=weights, minlength=cells).astype(np.float64)


def is_constant(m: Moments, floor: float = FLOOR) -> npt.NDArray[np.bool_]:
    """Say per cell whether the std is nothing but rounding, or below ``floor``."""
    result: npt.NDArray[np.bool_] = m.std <= np.maximum(floor, RELATIVE_FLOOR * np.abs(m.mean))
    return result


def normalise(
    x: FloatArray,
    cell: IntArray | None = None,
    cells: int = 1,
    *,
    reduce: Reduce = identity,
    ddof: int = 0,
    eps: float = 0.0,
    floor: float = FLOOR,
) -> FloatArray:
    """Return (x - mean) / (std + eps) per cell, over all ranks; exactly 0 in a constant cell.

    A cell is constant when its std is at most ``max(floor, 1e-12 * |mean|)``. This is the whole of
    ReBN after the returns: use it directly to normalise returns at another moment, for example
    after the surplus turns of a batch were dropped.
    """
    if not (np.isfinite(eps) and eps >= 0 and np.isfinite(floor) and floor >= 0):
        raise AdvantageError(f"eps and floor must be finite and >= 0, got {eps!r} and {floor!r}.")
    if cell is None:
        cell = np.zeros(x.shape[0], dtype=np.int64)
    m = moments(x, cell, cells, reduce=reduce, ddof=ddof)
    constant = is_constant(m, floor)
    scale = np.where(constant, 1.0, m.std + eps)
    out: FloatArray = np.where(constant[cell], 0.0, (x - m.mean[cell]) / scale[cell])
    return out


def env_cells(batch: TurnBatch, reduce: Reduce) -> tuple[IntArray, int]:
    """Return the environment of each turn and a number of environments that all ranks agree on.

    Ranks may see different environments, so the size of the table is agreed on by one reduction:
    each rank votes for the bit length of its largest id. A fault on one rank is in the vote too,
    so that all ranks raise instead of waiting for each other.
    """
    bits = MAX_ENVS.bit_length()
    vote = np.zeros(bits + 2)
    if len(batch):
        if batch.env is None:
            vote[bits] = 1
        elif batch.env.min() < 0 or batch.env.max() >= MAX_ENVS:
            vote[bits + 1] = 1
        else:
            vote[int(batch.env.max()).bit_length()] = 1
    votes = reduced(vote, reduce)
    if votes[bits]:
        raise AdvantageError("per_env=True needs TurnBatch.env: the environment id of each turn.")
    if votes[bits + 1]:
        raise AdvantageError(
            f"per_env=True needs environment ids in 0 .. {MAX_ENVS - 1}, numbered alike on all "
            "ranks: use the position of the environment in the recipe."
        )
    seen = np.flatnonzero(votes[:bits])
    cells = 1 << int(seen[-1]) if seen.size else 1
    env = np.zeros(0, dtype=np.int64) if batch.env is None else batch.env
    return env, cells


def reduced(array: FloatArray, reduce: Reduce) -> FloatArray:
    """Call ``reduce`` and check that what comes back has the shape that went in."""
    out = np.asarray(reduce(array), dtype=np.float64)
    if out.shape != array.shape:
        raise AdvantageError(
            f"reduce returned shape {out.shape} for {array.shape}: it must be an elementwise sum "
            "over ranks."
        )
    return out
