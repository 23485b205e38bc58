"""The metrics of a batch that `describe` returns."""

from __future__ import annotations

import numpy as np
import pytest

from gem_core.advantages import TurnBatch, compute_advantages, describe
from gem_core.errors import AdvantageError


def test_counts_and_moments():
    batch = TurnBatch(
        [1.0, 2.0, 5.0, 0.0, 9.0],
        [0, 0, 1, 2, 2],
        group=[0, 0, 0, 1, 1],
        mask=[True, True, True, True, False],
    )
    metrics = describe(batch, compute_advantages("reinforce", batch, gamma=1.0))
    assert metrics == pytest.approx(
        {
            "turns": 4,
            "episodes": 3,
            "masked_turns": 1,
            "groups": 2,
            "singleton_groups": 1,
            "return_mean": np.mean([3, 5, 0]),
            "return_std": np.std([3, 5, 0]),
            "advantage_mean": np.mean([3, 2, 5, 0]),
            "advantage_std": np.std([3, 2, 5, 0]),
            "advantage_cubed": (27 + 8 + 125) / 4,
            "constant": 0.0,
        }
    )


def test_a_batch_that_teaches_nothing_is_flagged():
    batch = TurnBatch.from_episodes([[-0.1], [-0.1], [-0.1]])
    assert describe(batch, compute_advantages("rebn", batch, gamma=0.9))["constant"] == 1.0
    empty = TurnBatch.from_episodes([])
    metrics = describe(empty, np.zeros(0))
    assert metrics["constant"] == 1.0 and all(np.isfinite(list(metrics.values())))


def test_wrong_shape():
    with pytest.raises(AdvantageError, match="1 turns"):
        describe(TurnBatch.from_episodes([[1.0]]), np.zeros(3))
