"""GAE over turns against the double sum of its definition."""

from __future__ import annotations

import numpy as np
import pytest

from gem_core.advantages import (
    TurnBatch,
    compute_advantages,
    discounted_returns,
    gae,
    normalise,
    value_targets,
)
from gem_core.errors import AdvantageError


def by_definition(episode: dict, gamma: float, lam: float) -> list[float]:
    """A_t = sum over l of (gamma lam)^l delta_{t+l}, the sum of arXiv 1506.02438 eq. 16."""
    rewards = episode["rewards"]
    values = [*episode["values"], episode["bootstrap"]]
    delta = [r + gamma * values[t + 1] - values[t] for t, r in enumerate(rewards)]
    return [
        sum((gamma * lam) ** step * d for step, d in enumerate(delta[t:]))
        for t in range(len(rewards))
    ]


def test_equal_to_the_definition(ragged, as_batch):
    for seed in range(500):
        episodes = ragged(seed)
        gamma = (0.9, 1.0, 0.5)[seed % 3]
        lam = (0.0, 0.95, 1.0, 0.3)[seed % 4]
        advantages = gae(as_batch(episodes), gamma=gamma, lam=lam)
        expected = [a for e in episodes for a in by_definition(e, gamma, lam)]
        np.testing.assert_allclose(advantages, expected, rtol=1e-10, atol=1e-10)


def test_lambda_one_is_return_minus_value(ragged, as_batch):
    for seed in range(100):
        episodes = ragged(seed)
        terminated = as_batch([{**e, "bootstrap": 0.0} for e in episodes])
        advantages = gae(terminated, gamma=0.9, lam=1.0)
        expected = discounted_returns(terminated, 0.9) - terminated.values
        np.testing.assert_allclose(advantages, expected, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(
            value_targets(advantages, terminated.values),
            discounted_returns(terminated, 0.9),
            atol=1e-10,
        )


def test_a_truncated_episode_is_bootstrapped_like_one_more_reward():
    cut = TurnBatch.from_episodes([[1.0, 0.5]], values=[[0.2, 0.1]], bootstraps=[2.0])
    whole = TurnBatch.from_episodes([[1.0, 0.5 + 0.9 * 2.0]], values=[[0.2, 0.1]])
    np.testing.assert_allclose(gae(cut, gamma=0.9, lam=0.8), gae(whole, gamma=0.9, lam=0.8))


def test_bootstrap_is_read_at_last_turns_only():
    batch = TurnBatch.from_episodes([[1.0, 0.5], [0.3]], values=[[0.2, 0.1], [0.4]])
    noisy = TurnBatch(
        batch.rewards, batch.episode, values=batch.values, bootstrap=np.array([99.0, 0.0, 0.0])
    )
    assert np.array_equal(gae(noisy, gamma=0.9, lam=0.9), gae(batch, gamma=0.9, lam=0.9))


def test_a_masked_last_turn_makes_the_previous_one_the_last():
    batch = TurnBatch(
        [1.0, 0.5, 9.0],
        [0, 0, 0],
        values=[0.2, 0.1, 9.0],
        bootstrap=[0.0, 2.0, 9.0],
        mask=[True, True, False],
    )
    short = TurnBatch([1.0, 0.5], [0, 0], values=[0.2, 0.1], bootstrap=[0.0, 2.0])
    advantages = gae(batch, gamma=0.9, lam=0.9)
    assert advantages.tolist() == [*gae(short, gamma=0.9, lam=0.9).tolist(), 0.0]


def test_whiten_is_the_normaliser_of_rebn(ragged, as_batch):
    batch = as_batch(ragged(5, episodes=8))
    plain = gae(batch, gamma=0.9, lam=0.9)
    white = compute_advantages("gae", batch, gamma=0.9, lam=0.9, whiten=True)
    assert np.array_equal(white, normalise(plain))
    assert white.std() == pytest.approx(1.0)


def test_values_are_required():
    with pytest.raises(AdvantageError, match=r"needs TurnBatch\.values.*rebn"):
        compute_advantages("gae", TurnBatch.from_episodes([[1.0]]), gamma=0.9)


def test_lambda_out_of_range():
    batch = TurnBatch.from_episodes([[1.0]], values=[[0.0]])
    with pytest.raises(AdvantageError, match="lam must be in"):
        compute_advantages("gae", batch, gamma=0.9, lam=1.5)
    with pytest.raises(AdvantageError, match="lam must be in"):
        gae(batch, gamma=0.9, lam=-0.5)
