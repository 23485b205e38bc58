"""ReBN and REINFORCE against definitions written out by hand."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_core.advantages import (
    TurnBatch,
    compute_advantages,
    discounted_returns,
    moments,
    normalise,
    rebn,
    reinforce,
)
from gem_core.errors import AdvantageError

REWARD = st.floats(-5, 5, allow_nan=False)
EPISODES = st.lists(st.lists(REWARD, min_size=1, max_size=8), min_size=1, max_size=10)


def returns_by_definition(rewards: list[float], gamma: float) -> list[float]:
    """G_t = sum over k >= t of gamma^(k-t) r_k."""
    return [
        math.fsum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards)))
        for t in range(len(rewards))
    ]


def rebn_by_definition(
    episodes: list[list[float]], gamma: float, ddof: int = 0, eps: float = 0.0
) -> list[float]:
    pool = [g for rewards in episodes for g in returns_by_definition(rewards, gamma)]
    if ddof and len(pool) < 2:
        return [0.0] * len(pool)
    std = statistics.stdev(pool) if ddof else statistics.pstdev(pool)
    if std <= max(1e-8, 1e-12 * abs(statistics.fmean(pool))):
        return [0.0] * len(pool)
    mean = statistics.fmean(pool)
    return [(g - mean) / (std + eps) for g in pool]


def test_rebn_equals_its_definition_on_1000_ragged_batches(ragged, as_batch):
    constant = 0
    for seed in range(1000):
        episodes = ragged(seed)
        gamma = (0.0, 0.5, 0.9, 0.99, 1.0)[seed % 5]
        advantages = compute_advantages("rebn", as_batch(episodes), gamma=gamma)
        expected = rebn_by_definition([e["rewards"] for e in episodes], gamma)
        np.testing.assert_allclose(advantages, expected, rtol=1e-9, atol=1e-9)
        constant += not any(expected)
    assert constant < 200  # the batches are not trivial


@settings(max_examples=300, deadline=None)
@given(EPISODES, st.floats(0, 1), st.sampled_from([0, 1]), st.sampled_from([0.0, 1e-9, 1e-3]))
def test_rebn_options(episodes, gamma, ddof, eps):
    advantages = rebn(TurnBatch.from_episodes(episodes), gamma=gamma, ddof=ddof, eps=eps)
    expected = np.array(rebn_by_definition(episodes, gamma, ddof, eps))
    # A standard deviation near `floor` may fall on either side of it.
    std = np.std([g for e in episodes for g in returns_by_definition(e, gamma)])
    if not 0.99e-8 < std < 2e-8:
        np.testing.assert_allclose(advantages, expected, rtol=1e-6, atol=1e-6)


@settings(max_examples=300, deadline=None)
@given(EPISODES, st.floats(0, 1))
def test_reinforce_is_the_discounted_return(episodes, gamma):
    advantages = reinforce(TurnBatch.from_episodes(episodes), gamma=gamma)
    expected = [g for e in episodes for g in returns_by_definition(e, gamma)]
    np.testing.assert_allclose(advantages, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "size", [128, *(pytest.param(s, marks=pytest.mark.slow("trl", "oat")) for s in (1, 2, 7, 1000))]
)
def test_2001_constant_batches_give_exact_zeros(size):
    # The published formula E[x^2] - E[x]^2 in float32 gives NaN for 850 of these at 128 turns.
    for constant in np.linspace(-1.0, 1.0, 2001):
        batch = TurnBatch(rewards=np.full(size, constant), episode=np.arange(size))
        for options in ({}, {"ddof": 1}, {"eps": 1e-9}, {"per_env": True}):
            if "per_env" in options:
                batch = TurnBatch(batch.rewards, batch.episode, env=np.arange(size) % 3)
            assert not rebn(batch, gamma=0.9, **options).any(), (constant, options)


@pytest.mark.parametrize("constant", [1e-30, 0.1, 0.9, 1e6 / 3, 1e9 + 0.1, -1e15 / 7, 1e100 / 3])
def test_constant_batches_of_any_size_give_exact_zeros(constant):
    batch = TurnBatch(rewards=np.full(100_003, constant), episode=np.arange(100_003))
    assert not rebn(batch, gamma=1.0).any()


def test_the_rounding_of_the_mean_is_corrected():
    # One running sum over 300,000 numbers is off by about 1e-11 of the mean.
    rng = np.random.default_rng(1)
    for constant in rng.uniform(-1, 1, size=40) * 10.0 ** rng.integers(0, 14, size=40):
        numbers = np.full(300_001, constant)
        result = moments(numbers)
        assert abs(result.mean[0] - constant) <= 1e-15 * abs(constant)
        assert result.std[0] <= 1e-15 * abs(constant)
        assert not normalise(numbers, floor=0.0).any()


def test_constant_returns_that_differ_by_rounding_are_constant():
    returns = np.full(1000, 0.3)
    returns[::2] = 0.1 + 0.2
    assert returns.std() > 0
    for scale in (1.0, 1e12):  # at 1e12 the rounding is far above any fixed floor
        assert not normalise(scale * returns).any()


def test_a_small_signal_on_a_large_offset_is_not_lost():
    numbers = 1e8 + np.array([0.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(normalise(numbers), normalise(numbers - 1e8), rtol=1e-12)


def test_float32_rewards_are_computed_in_float64():
    rewards = np.array([0.1, 0.7, 0.3, 0.9], dtype=np.float32)
    episode = np.array([0, 0, 1, 1])
    from_float32 = rebn(TurnBatch(rewards, episode), gamma=0.9)
    assert from_float32.dtype == np.float64
    from_float64 = rebn(TurnBatch(rewards.astype(np.float64), episode), gamma=0.9)
    assert np.array_equal(from_float32, from_float64)


def test_per_env_is_rebn_of_each_env_alone(ragged, as_batch):
    for seed in range(200):
        episodes = ragged(seed, episodes=12)
        batch = as_batch(episodes)
        advantages = rebn(batch, gamma=0.9, per_env=True)
        for env in {e["env"] for e in episodes}:
            alone = rebn_by_definition([e["rewards"] for e in episodes if e["env"] == env], 0.9)
            np.testing.assert_allclose(advantages[batch.env == env], alone, rtol=1e-9, atol=1e-9)


def test_per_env_needs_usable_env_ids():
    with pytest.raises(AdvantageError, match=r"needs TurnBatch\.env"):
        rebn(TurnBatch.from_episodes([[1.0]]), gamma=0.9, per_env=True)
    for bad in (-1, 2**16):
        with pytest.raises(AdvantageError, match=r"0 \.\. 65535"):
            rebn(TurnBatch.from_episodes([[1.0]], envs=[bad]), gamma=0.9, per_env=True)
    top = TurnBatch.from_episodes([[1.0], [0.0]], envs=[2**16 - 1, 2**16 - 1])
    assert rebn(top, gamma=0.9, per_env=True).tolist() == [1.0, -1.0]


def test_masked_turns_are_as_if_absent(ragged, as_batch):
    rng = np.random.default_rng(0)
    for seed in range(300):
        batch = as_batch(ragged(seed))
        n = len(batch)
        mask = rng.random(n) < 0.7
        rewards = batch.rewards.copy()
        values = batch.values.copy()
        rewards[~mask] = np.nan
        values[~mask] = np.inf  # padding may hold anything
        masked = TurnBatch(
            rewards, batch.episode, batch.group, batch.env, values, batch.bootstrap, mask
        )
        for name in ("reinforce", "rebn", "grpo", "dr_grpo", "rloo", "gae"):
            advantages = compute_advantages(name, masked, gamma=0.9)
            assert not advantages[~mask].any()
            direct = compute_advantages(name, masked.valid(), gamma=0.9)
            assert np.array_equal(advantages[mask], direct), name
        assert np.array_equal(
            discounted_returns(masked, 0.9)[mask], discounted_returns(masked.valid(), 0.9)
        )


def test_no_turns_give_no_advantages():
    for batch in (TurnBatch.from_episodes([]), TurnBatch([1.0], [0], mask=[False])):
        for name in ("reinforce", "rebn", "grpo", "dr_grpo", "rloo", "gae"):
            advantages = compute_advantages(name, batch, gamma=0.9)
            assert (
                advantages.shape == (len(batch),)
                and not advantages.any()
                and advantages.dtype == np.float64
            )


def test_the_three_shipped_variants_differ_and_are_reproduced():
    """The options are those of docs/advantages.md; the variants normalise different returns."""
    rng = np.random.default_rng(3)
    returns = rng.normal(size=50)
    kept = rng.permutation(50)[:32]
    oat = normalise(returns[kept], eps=1e-9)
    verl = normalise(returns[kept], ddof=1, eps=1e-9)
    tinker = normalise(returns, ddof=1, eps=1e-9)[kept]
    sub = returns[kept]
    np.testing.assert_allclose(oat, (sub - sub.mean()) / (np.std(sub) + 1e-9), rtol=1e-12)
    np.testing.assert_allclose(verl, (sub - sub.mean()) / (np.std(sub, ddof=1) + 1e-9), rtol=1e-12)
    whole = (returns - returns.mean()) / (np.std(returns, ddof=1) + 1e-9)
    np.testing.assert_allclose(tinker, whole[kept], rtol=1e-12)
    assert not np.allclose(oat, verl) and not np.allclose(verl, tinker)


@pytest.mark.parametrize(
    "options", [{"ddof": 2}, {"eps": -1.0}, {"floor": float("nan")}, {"floor": -1e-9}]
)
def test_bad_numbers_are_refused(options):
    with pytest.raises(AdvantageError):
        rebn(TurnBatch.from_episodes([[1.0], [2.0]]), gamma=0.9, **options)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan")])
def test_gamma_out_of_range(gamma):
    batch = TurnBatch.from_episodes([[1.0, 2.0]])
    with pytest.raises(AdvantageError, match="gamma must be in"):
        compute_advantages("rebn", batch, gamma=gamma)
    with pytest.raises(AdvantageError, match="gamma must be in"):
        reinforce(batch, gamma=gamma)


def by_loop(rewards, lengths, gamma):
    """The recurrence, turn by turn."""
    returns = []
    for part in np.split(rewards, np.cumsum(lengths)[:-1]):
        backwards, running = [], 0.0
        for number, reward in enumerate(part[::-1].tolist()):
            running = reward + gamma * running if number else reward
            backwards.append(running)
        returns += backwards[::-1]
    return np.array(returns)


@pytest.mark.parametrize(
    "lengths",
    [
        [1],
        [5000],
        [1] * 300,
        [*[3] * 100, 700, *[1] * 50, 701],  # few long ones: the end of the work is a loop
        [*range(1, 60)],
        [40_000, *[2] * 40],  # longer than a 16-bit integer
        [*[7] * 20_000, 70_000, 3],  # computed in several pieces
    ],
)
def test_returns_have_the_digits_of_the_loop(lengths):
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=sum(lengths))
    batch = TurnBatch(rewards, np.repeat(np.arange(len(lengths)), lengths))
    for gamma in (0.0, 0.9, 1.0):
        got = compute_advantages("reinforce", batch, gamma=gamma)
        assert got.tolist() == by_loop(rewards, lengths, gamma).tolist()
