"""Convert episodes to the arrays that estimators read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gem_core.advantages.batch import TurnBatch
from gem_core.episodes.data import Episode


def turn_batch(episodes: Sequence[Episode]) -> TurnBatch:
    """Flatten the turns of ``episodes`` to arrays [N]; excluded turns are masked.

    Environments are numbered in the order of their ids, so that ranks with the same set of ids give
    them the same numbers.
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
    """Return the positions of the turns that have tokens, in time order."""
    return [turn for segment in episode.segments for turn, _, _ in segment.spans]


def with_values(
    turns: TurnBatch, episodes: Sequence[Episode], values: Sequence[np.ndarray]
) -> TurnBatch:
    """Return ``turns`` with the values of a critic.

    Args:
        turns: the batch of ``episodes``, see `turn_batch`.
        episodes: the episodes of the batch.
        values: per episode one value for each turn with tokens, and one more for the state in which
            a limit cut the episode off, if there is such a state.
    """
    per_turn = []
    bootstraps = []
    for episode, estimated in zip(episodes, values, strict=True):
        positions = turns_with_tokens(episode)
        row = np.zeros(len(episode.turns))
        row[positions] = estimated[: len(positions)]
        per_turn.append(row)
        last = estimated[-1] if len(estimated) > len(positions) else 0.0
        bootstraps.append(np.full(len(row), last))
    return replace(turns, values=np.concatenate(per_turn), bootstrap=np.concatenate(bootstraps))
