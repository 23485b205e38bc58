"""GRPO, Dr. GRPO and RLOO against definitions written out by hand."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from gem_core.advantages import TurnBatch, compute_advantages, dr_grpo, grpo, rloo
from gem_core.errors import AdvantageError


def by_definition(episodes: list[dict], name: str) -> list[float]:
    """Return one advantage per turn, in the order of the batch."""
    advantages = []
    for episode in episodes:
        group = [e for e in episodes if e["group"] == episode["group"]]
        totals = [math.fsum(e["rewards"]) for e in group]
        total = math.fsum(episode["rewards"])
        if len(group) == 1 or statistics.pstdev(totals) < 1e-8:
            advantage = 0.0
        elif name == "grpo":
            advantage = (total - statistics.fmean(totals)) / statistics.pstdev(totals)
        elif name == "dr_grpo":
            advantage = total - statistics.fmean(totals)
        else:
            others = [math.fsum(e["rewards"]) for e in group if e is not episode]
            advantage = total - statistics.fmean(others)
        advantages += [advantage] * len(episode["rewards"])
    return advantages


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_equal_to_the_definition(name, ragged, as_batch):
    signal = 0
    for seed in range(500):
        episodes = ragged(seed)
        advantages = compute_advantages(name, as_batch(episodes), gamma=0.9)
        np.testing.assert_allclose(advantages, by_definition(episodes, name), rtol=1e-9, atol=1e-9)
        signal += bool(advantages.any())
    assert signal > 300


def test_std_false_is_dr_grpo_and_gamma_is_not_read(ragged, as_batch):
    for seed in range(50):
        batch = as_batch(ragged(seed))
        assert np.array_equal(grpo(batch, gamma=0.1, std=False), dr_grpo(batch, gamma=1.0))


def test_eps_is_added_to_the_std():
    batch = TurnBatch.from_episodes([[1.0], [0.0]], groups=[0, 0])
    assert grpo(batch, eps=0.5).tolist() == [0.5, -0.5]


def test_singletons_and_constant_groups_are_exactly_zero():
    rewards = [[0.1] * 3, [0.3], [0.1, 0.2], [5.0], [1.0, 0.0], [0.0]]
    groups = ["a", "a", "a", "alone", "b", "b"]  # 0.1 + 0.1 + 0.1 and 0.1 + 0.2 are not 0.3
    for name in ("grpo", "dr_grpo", "rloo"):
        advantages = compute_advantages(name, TurnBatch.from_episodes(rewards, groups), gamma=1.0)
        assert not advantages[:7].any()
        assert advantages[7] == advantages[8] == -advantages[9] != 0


def test_groups_may_be_scattered_and_order_does_not_matter():
    rewards = [[1.0, 0.5], [0.0], [0.2], [0.9, 0.1]]
    straight = rloo(TurnBatch.from_episodes(rewards, groups=[7, 7, -2, -2]))
    order = [2, 0, 3, 1]
    mixed = TurnBatch.from_episodes([rewards[i] for i in order], groups=[-2, 7, -2, 7])
    parts = list(mixed.by_episode(rloo(mixed)).values())
    again = np.concatenate([parts[order.index(i)] for i in range(4)])
    np.testing.assert_allclose(again, straight, rtol=1e-12)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_without_groups_they_refuse(name):
    # Otherwise each episode is alone in its group, and training continues without learning.
    with pytest.raises(AdvantageError, match=r"needs TurnBatch\.group"):
        compute_advantages(name, TurnBatch.from_episodes([[1.0], [0.0]]), gamma=1.0)
