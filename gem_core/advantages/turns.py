"""Conversion between turns and tokens: turns of a response mask, advantages on tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gem_core.errors import AdvantageError

Span = tuple[int, int]
"""The action tokens ``start <= i < end`` of one turn."""


def runs_of_ones(mask_row: npt.ArrayLike) -> list[Span]:
    """Return the maximal runs of ones of a mask [T] as ``(start, end)``: the turns of a row.

    Two turns with no zero between them are one run.

    >>> runs_of_ones([0, 1, 1, 0, 1])
    [(1, 3), (4, 5)]
    """
    mask = np.asarray(mask_row)
    if mask.ndim != 1 or not np.isin(mask, (0, 1)).all():
        raise AdvantageError("A response mask must be one row of zeros and ones.")
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def spread(per_turn: npt.ArrayLike, spans: Sequence[Span], length: int) -> npt.NDArray[np.float64]:
    """Put one number per turn on that turn's tokens and 0 everywhere else.

    Args:
        per_turn: float [turns].
        spans: the ``(start, end)`` of each turn, in time order, not overlapping. An empty span
            (``start == end``) is a turn without action tokens: its number is not used.
        length: number of tokens in the row.

    Returns:
        float64 [length].

    Raises:
        AdvantageError: the counts differ, or a span is out of bounds or overlaps another one.

    >>> spread([0.5, -1.0], [(1, 3), (4, 5)], 6).tolist()
    [0.0, 0.5, 0.5, 0.0, -1.0, 0.0]
    """
    numbers = np.asarray(per_turn, dtype=np.float64)
    if numbers.shape != (len(spans),):
        raise AdvantageError(f"spread got numbers of shape {numbers.shape} for {len(spans)} spans.")
    out = np.zeros(length)
    previous = 0
    for number, (start, end) in zip(numbers, spans, strict=True):
        if not previous <= start <= end <= length:
            raise AdvantageError(
                f"Span ({start}, {end}) does not fit: spans must be in time order, must not "
                f"overlap (the previous one ends at {previous}) and must be in the row's {length} "
                "tokens."
            )
        out[start:end] = number
        previous = end
    return out


def spread_rows(
    per_turn: npt.ArrayLike, spans: Sequence[Sequence[Span]], length: int
) -> npt.NDArray[np.float64]:
    """Put the numbers of the turns of many rows on their tokens: float64 [rows, length].

    The numbers are in the order in which `TurnBatch.from_token_rows` returns the turns, and
    ``spans`` are the spans that it returns.
    """
    numbers = np.asarray(per_turn, dtype=np.float64)
    counts = [len(row) for row in spans]
    if numbers.shape != (sum(counts),):
        raise AdvantageError(
            f"spread_rows got numbers of shape {numbers.shape} for {sum(counts)} spans."
        )
    parts = np.split(numbers, np.cumsum(counts, dtype=np.int64)[:-1])
    if not counts:
        return np.zeros((0, length))
    return np.stack([spread(p, row, length) for p, row in zip(parts, spans, strict=True)])
