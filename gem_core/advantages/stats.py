"""Batch statistics in float64 and over many ranks, correct also on constant batches."""

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
RELATIVE_FLOOR = 1e-12  # of |mean|: the std that rounding in float64 can leave of a constant
MAX_ENVS = 2**16
_BLOCK = 2**14  # numbers that are summed at a time: they stay in a processor's cache


def identity(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ``array``: the `Reduce` of a single process."""
    return array


class Moments(NamedTuple):
    """Number of elements, mean and standard deviation of each cell, float64 [cells]."""

    n: FloatArray
    mean: FloatArray
    std: FloatArray


def moments(
    numbers: FloatArray,
    cell: IntArray | None = None,
    cells: int = 1,
    *,
    reduce: Reduce = identity,
    ddof: int = 0,
) -> Moments:
    """Compute two-pass moments of ``numbers`` [N] per cell, over all ranks.

    There are always two reductions, also for N = 0: of the count and the sum, then of the
    deviations and their squares. The sum of the deviations corrects the rounding of the mean, so
    that a constant has a std near 0 whatever its value; E[x^2] - E[x]^2 does not guarantee that. An
    empty cell has mean and std 0.

    Args:
        numbers: float64 [N].
        cell: int64 [N] in ``0 .. cells - 1``; ``None`` is one cell for everything.
        cells: number of cells, the same on every rank.
        reduce: the sum over ranks.
        ddof: 0 for the population std, 1 for the unbiased one (a single element has std 0).
    """
    if ddof not in (0, 1):
        raise AdvantageError(f"ddof must be 0 (population) or 1 (unbiased), got {ddof!r}.")

    def totals(*sums: FloatArray) -> list[FloatArray]:
        return np.split(reduced(np.concatenate(sums), reduce), len(sums))

    own = np.array([float(numbers.size)]) if cell is None else sums_by(cell, None, cells)
    count, total = totals(own, sums_by(cell, numbers, cells))
    n = np.maximum(count, 1.0)
    mean = total / n
    shift, squares = totals(*_deviation_sums(numbers, mean, cell))
    variance = np.maximum(squares - shift * shift / n, 0.0) / np.maximum(count - ddof, 1.0)
    return Moments(count, mean + shift / n, np.sqrt(variance))


def _deviation_sums(
    numbers: FloatArray, mean: FloatArray, cell: IntArray | None
) -> tuple[FloatArray, FloatArray]:
    """Sum the deviations from the mean, and their squares, per cell: float64 [cells] each.

    Without cells, both are the parts of one complex sum, which takes the time of one: a sum in
    order waits for each addition. The digits are those of two sums.
    """
    if cell is not None:
        deviation = numbers - mean[cell]
        squares = deviation * deviation
        return sums_by(cell, deviation, mean.size), sums_by(cell, squares, mean.size)
    sums = np.zeros(_BLOCK + 1, dtype=np.complex128)
    for first in range(0, numbers.size, _BLOCK):
        block = numbers[first : first + _BLOCK]
        both = sums[: block.size + 1]  # what was summed so far, then the block
        np.subtract(block, mean[0], out=both.real[1:])
        np.multiply(both.real[1:], both.real[1:], out=both.imag[1:])
        np.cumsum(both, out=both)
        sums[0] = both[-1]
    return sums.real[:1].copy(), sums.imag[:1].copy()


def sums_by(cell: npt.NDArray[Any] | None, weights: FloatArray | None, cells: int) -> FloatArray:
    """Sum ``weights`` [N] per cell, one number after the other; float64 [cells].

    ``numpy.sum`` adds in another order, so that its last digits differ. Without ``cell`` there is
    one cell; without ``weights`` it counts.
    """
    if cell is None:
        if weights is None or not weights.size:
            return np.zeros(1)
        return np.cumsum(weights)[-1:].copy()
    return np.bincount(cell, weights=weights, minlength=cells).astype(np.float64)


def is_constant(m: Moments, floor: float = FLOOR) -> npt.NDArray[np.bool_]:
    """Return per cell whether its std is at most ``floor``, or no more than rounding."""
    result: npt.NDArray[np.bool_] = m.std <= np.maximum(floor, RELATIVE_FLOOR * np.abs(m.mean))
    return result


def normalise(
    numbers: FloatArray,
    cell: IntArray | None = None,
    cells: int = 1,
    *,
    reduce: Reduce = identity,
    ddof: int = 0,
    eps: float = 0.0,
    floor: float = FLOOR,
) -> FloatArray:
    """Return (number - mean) / (std + eps) per cell, over all ranks; exactly 0 in a constant cell.

    A cell is constant when its std is at most ``max(floor, 1e-12 * |mean|)``. ReBN is this
    function, applied to the returns. Use it directly to normalise returns at another moment, for
    example after the surplus turns of a batch were dropped.
    """
    if not (np.isfinite(eps) and eps >= 0 and np.isfinite(floor) and floor >= 0):
        raise AdvantageError(f"eps and floor must be finite and >= 0, got {eps!r} and {floor!r}.")
    m = moments(numbers, cell, cells, reduce=reduce, ddof=ddof)
    constant = is_constant(m, floor)
    scale = np.where(constant, 1.0, m.std + eps)
    if cell is None:
        if constant[0]:
            return np.zeros_like(numbers)
        centred: FloatArray = numbers - m.mean[0]
        centred /= scale[0]
        return centred
    out: FloatArray = np.where(constant[cell], 0.0, (numbers - m.mean[cell]) / scale[cell])
    return out


def env_cells(batch: TurnBatch, reduce: Reduce) -> tuple[IntArray, int]:
    """Return the environment of each turn, and a number of cells that is the same on all ranks.

    Ranks may have different environments, so one reduction determines the number of cells: each
    rank adds a vote for the bit length of its largest id. An error on one rank is a vote too, so
    that all ranks raise instead of waiting for each other.
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
            f"per_env=True needs environment ids in 0 .. {MAX_ENVS - 1} that mean the same on all "
            "ranks: use the position of the environment in the recipe."
        )
    lengths = np.flatnonzero(votes[:bits])
    cells = 1 << int(lengths[-1]) if lengths.size else 1
    env = np.zeros(0, dtype=np.int64) if batch.env is None else batch.env
    return env, cells


def reduced(array: FloatArray, reduce: Reduce) -> FloatArray:
    """Call ``reduce`` and check that its result has the shape of ``array``."""
    out = np.asarray(reduce(array), dtype=np.float64)
    if out.shape != array.shape:
        raise AdvantageError(
            f"reduce returned shape {out.shape} for {array.shape}: it must be an elementwise sum "
            "over ranks."
        )
    return out
