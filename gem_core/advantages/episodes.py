"""From episodes to the arrays of the estimators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gem_core.advantages.batch import TurnBatch
from gem_core.episode import Episode


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
