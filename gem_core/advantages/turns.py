"""Between turns and tokens: recover turns from a response mask, spread advantages over tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gem_core.errors import AdvantageError

Span = tuple[int, int]
"""The action tokens ``start <= i < end`` of one turn."""


def runs_of_ones(mask_row: npt.ArrayLike) -> list[Span]:
    """Return the maximal runs of ones of a mask [T] as ``(start, end)``: the turns of a row.

    Two turns with no zero between them come out as one.

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
        spans: The ``(start, end)`` of each turn, in time order, not overlapping. An empty span
            (``start == end``) is a turn without action tokens: its number goes nowhere.
        length: Number of tokens of the row.

    Returns:
        float64 [length].

    Raises:
        AdvantageError: The counts differ, or a span is out of bounds or overlaps the one before.

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
                f"Span ({start}, {end}) does not fit: spans must be in time order, not overlap "
                f"(the one before ends at {previous}) and lie in the row's {length} tokens."
            )
        out[start:end] = number
        previous = end
    return out


def spread_rows(
    per_turn: npt.ArrayLike, spans: Sequence[Sequence[Span]], length: int
) -> npt.NDArray[np.float64]:
    """Spread the turns of many rows, given one after the other, to float64 [rows, length].

    The inverse of `TurnBatch.from_token_rows`: same order of turns, same spans.
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
