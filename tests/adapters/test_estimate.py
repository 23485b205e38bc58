"""`estimate`, which adapters call, against its parts."""

from __future__ import annotations

import numpy as np
import pytest

from gem_adapters.estimate import estimate
from gem_core.advantages import TurnBatch, compute_advantages, gae, value_targets
from gem_core.runs.recipe.recipe import AlgorithmConfig

EPISODES = {"episode": [0, 0, 1, 2], "group": [0, 0, 0, 1], "mask": [True, True, True, False]}


def batch(**more: object) -> TurnBatch:
    arrays = {key: np.array(value) for key, value in EPISODES.items()}
    return TurnBatch(rewards=np.array([0.0, 1.0, -2.0, 5.0]), **arrays, **more)


def test_it_is_the_estimator_and_its_metrics() -> None:
    result = estimate(batch(), AlgorithmConfig(estimator="rebn", gamma=0.9))
    np.testing.assert_array_equal(
        result.advantages, compute_advantages("rebn", batch(), gamma=0.9, lam=0.95)
    )
    assert result.targets is None
    assert result.metrics["groups/singleton"] == 0.0
    assert result.metrics["advantage/constant"] == 0.0
    assert result.metrics["advantage/std"] == pytest.approx(result.advantages[:3].std())


def test_targets_are_of_advantages_that_are_not_whitened() -> None:
    values = np.array([0.3, 0.2, 0.1, 0.0])
    settings = AlgorithmConfig(estimator="gae", options={"whiten": True}, gamma=0.9, lam=0.8)
    result = estimate(batch(values=values), settings)
    raw = gae(batch(values=values), gamma=0.9, lam=0.8)
    np.testing.assert_array_equal(result.targets, value_targets(raw, values))
    assert result.advantages[:3].mean() == pytest.approx(0.0, abs=1e-12)
    assert not np.allclose(result.advantages, raw)


def test_options_reach_the_estimator() -> None:
    plain = estimate(batch(), AlgorithmConfig(estimator="grpo")).advantages
    unscaled = estimate(batch(), AlgorithmConfig(estimator="grpo", options={"std": False}))
    assert not np.allclose(plain, unscaled.advantages)
