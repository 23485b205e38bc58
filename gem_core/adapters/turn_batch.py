"""From episodes to the arrays of the estimators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gem_core.advantages.batch import TurnBatch
from gem_core.episodes.data import Episode


def turn_batch(episodes: Sequence[Episode]) -> TurnBatch:
    """Flatten the turns of ``episodes``, [N] in all; turns that are excluded are masked.

    Environments are numbered in the order of their ids, so that ranks with the same set of ids
    number them alike.
    """
    env_ids = sorted({e.env_id for e in episodes})
    numbered = [(n, e, t) for n, e in enumerate(episodes) for t in e.turns]
    return TurnBatch(
        rewards=np.array([t.reward for _, _, t in numbered], dtype=np.float64),
        episode=np.array([n for n, _, _ in numbered], dtype=np.int64),
        group=np.array([e.group for _, e, _ in numbered], dtype=np.int64),
        env=np.array([env_ids.index(e.env_id) for _, e, _ in numbered], dtype=np.int64),
        mask=np.array([not t.aborted for _, _, t in numbered], dtype=bool),
    )


def turns_with_tokens(episode: Episode) -> list[int]:
    """Positions of the turns that have tokens, in order."""
    return [turn for segment in episode.segments for turn, _, _ in segment.spans]


def with_values(
    turns: TurnBatch, episodes: Sequence[Episode], values: Sequence[np.ndarray]
) -> TurnBatch:
    """``turns`` with what a critic read: per episode one value per turn with tokens, and one more
    for the state in which a limit cut it off, if there is one.
    """
    per_turn, ends = [], []
    for episode, found in zip(episodes, values, strict=True):
        places = turns_with_tokens(episode)
        row = np.zeros(len(episode.turns))
        row[places] = found[: len(places)]
        per_turn.append(row)
        ends.append(np.full(len(row), found[-1] if len(found) > len(places) else 0.0))
    return replace(turns, values=np.concatenate(per_turn), bootstrap=np.concatenate(ends))
