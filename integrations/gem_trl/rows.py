"""The token rows that TRL trains on, and how their number meets TRL's fixed number of passes.

An append-only history is one row per episode. A history that is rewritten makes a row of each
segment with a trained token, so that the number of rows differs from step to step and from rank to
rank, while TRL's numbers of minibatches and forward passes are fixed. `divide` spreads the rows
over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from gem_core.episodes.data import Episode, Segment


class Row(NamedTuple):
    """A row of this rank.

    Attributes:
        episode: position among the rank's episodes.
        segment: the tokens; ``None`` for an episode without an action.
    """

    episode: int
    segment: Segment | None


def one_row_each(episodes: Sequence[Episode]) -> list[Row]:
    """Return one row per episode; their histories are append-only."""
    rows = []
    for number, episode in enumerate(episodes):
        acted = any(segment.spans for segment in episode.segments)
        if acted:
            (segment,) = episode.segments  # an append-only history has one
        rows.append(Row(number, segment if acted else None))
    return rows


def segment_rows(episodes: Sequence[Episode]) -> list[Row]:
    """Return a row per segment with a trained token; the others have no part in any loss."""
    return [
        Row(number, segment)
        for number, episode in enumerate(episodes)
        for segment in episode.segments
        if any(segment.loss_mask)
    ]


def divide(count: int, slots: Sequence[int], passes: int) -> list[list[torch.Tensor]]:
    """Divide ``count`` shuffled rows into minibatches, and these into forward passes.

    Args:
        count: rows of this rank; row ``count`` is one that nothing is trained on.
        slots: rows of each minibatch, on every rank as many; the sum is at least ``count``.
        passes: forward passes of a minibatch; no minibatch has fewer slots.

    Returns:
        the rows of each pass of each minibatch, int64; empty slots have row ``count``.
    """
    order = torch.randperm(count)
    result = []
    for rows, size in zip(order.tensor_split(len(slots)), slots, strict=True):
        filled = torch.cat([rows, torch.full((size - len(rows),), count)])
        result.append(list(filled.tensor_split(passes)))
    return result


def slots_of(count: int, minibatches: int, passes: int) -> list[int]:
    """Return the slots of each minibatch that ``count`` rows of the fullest rank need."""
    parts = torch.arange(count).tensor_split(minibatches)
    return [max(len(part), passes) for part in parts]


def rows_of(batch: dict[str, Any], rows: Any) -> dict[str, Any]:
    """Return the chosen rows of TRL's batch.

    Args:
        batch: tensors of rows, and numbers of the whole batch.
        rows: int64 indices, or a slice.
    """
    return {
        name: value[rows] if isinstance(value, torch.Tensor) and value.dim() else value
        for name, value in batch.items()
    }
