"""Batches split over ranks, with a blocking all-reduce, equal the batch of one process."""

from __future__ import annotations

import numpy as np
import pytest

from gem_core.advantages import TurnBatch, compute_advantages, describe
from gem_core.errors import AdvantageError

CASES = [
    ("reinforce", {}),
    ("rebn", {}),
    ("rebn", {"ddof": 1, "eps": 1e-6}),
    ("rebn", {"per_env": True}),
    ("gae", {}),
    ("gae", {"whiten": True}),
    ("grpo", {}),
    ("dr_grpo", {}),
    ("rloo", {}),
]


def split(episodes: list[dict], k: int, whole_groups: bool, rng: np.random.Generator):
    """Give each episode, or each group, to a rank; some ranks stay empty."""
    groups = sorted({e["group"] for e in episodes})
    rank_of_group = dict(zip(groups, rng.integers(0, k, len(groups)).tolist(), strict=True))
    ranks = [
        rank_of_group[e["group"]] if whole_groups else int(rng.integers(0, k)) for e in episodes
    ]
    return [[i for i, r in enumerate(ranks) if r == rank] for rank in range(k)]


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_equal_to_one_process(name, options, k, ragged, as_batch, make_ranks):
    rng = np.random.default_rng(k)
    empty_ranks = 0
    for seed in range(25):
        episodes = ragged(seed)
        whole = as_batch(episodes)
        expected = whole.by_episode(compute_advantages(name, whole, gamma=0.9, **options))
        shares = split(episodes, k, name in ("grpo", "dr_grpo", "rloo"), rng)
        empty_ranks += sum(not share for share in shares)
        ranks = make_ranks(k)

        def work(rank, reduce, shares=shares, episodes=episodes):
            mine = as_batch([episodes[i] for i in shares[rank]])
            advantages = compute_advantages(name, mine, gamma=0.9, reduce=reduce, **options)
            return list(mine.by_episode(advantages).values())

        results = ranks.run(work)
        assert len(set(ranks.calls)) == 1 and ranks.dtypes <= {np.dtype(np.float64)}
        for share, result in zip(shares, results, strict=True):
            assert not isinstance(result, Exception), result
            for i, row in zip(share, result, strict=True):
                np.testing.assert_allclose(row, expected[i], rtol=1e-9, atol=1e-9)
    assert k == 1 or empty_ranks


def test_constant_over_all_ranks_is_exactly_zero(make_ranks):
    for constant in (0.1, 0.9, -0.1, 1e6 / 3):
        results = make_ranks(3).run(
            lambda rank, reduce, c=constant: compute_advantages(
                "rebn", TurnBatch.from_episodes([[c]] * (7 * rank + 1)), gamma=0.9, reduce=reduce
            )
        )
        assert not np.concatenate(results).any()


def test_different_constants_per_rank_are_a_signal(make_ranks):
    results = make_ranks(2).run(
        lambda rank, reduce: compute_advantages(
            "rebn", TurnBatch.from_episodes([[float(rank)]] * 2), gamma=0.9, reduce=reduce
        )
    )
    assert np.concatenate(results).tolist() == [-1.0, -1.0, 1.0, 1.0]


def test_per_env_where_each_rank_sees_other_environments(make_ranks):
    envs = [[0], [40, 41], [], [3, 40]]

    def work(rank, reduce):
        mine = [e for e in envs[rank] for _ in range(2)]
        batch = TurnBatch.from_episodes([[float(i % 2)] for i in range(len(mine))], envs=mine)
        return compute_advantages("rebn", batch, gamma=0.9, reduce=reduce, per_env=True).tolist()

    assert make_ranks(4).run(work) == [[-1.0, 1.0] * len(e) for e in envs]


def test_a_fault_of_one_rank_is_raised_on_all_of_them(make_ranks):
    def work(rank, reduce):
        envs = [0] if rank else [-3]
        batch = TurnBatch.from_episodes([[1.0]], envs=envs)
        return compute_advantages("rebn", batch, gamma=0.9, reduce=reduce, per_env=True)

    results = make_ranks(3).run(work)
    assert [type(r) for r in results] == [AdvantageError] * 3


def test_all_masked_rank_takes_part(make_ranks):
    def work(rank, reduce):
        mask = [bool(rank)] * 2
        batch = TurnBatch([1.0, 3.0], [0, 1], mask=mask)
        return compute_advantages("rebn", batch, gamma=0.9, reduce=reduce)

    results = make_ranks(2).run(work)
    assert [r.tolist() for r in results] == [[0.0, 0.0], [-1.0, 1.0]]


def test_describe_over_ranks(ragged, as_batch, make_ranks):
    episodes = ragged(11, episodes=9)
    whole = as_batch(episodes)
    # Groups are counted per rank, so each must be whole on one rank.
    shares = split(episodes, 3, True, np.random.default_rng(0))

    def work(rank, reduce):
        mine = as_batch([episodes[i] for i in shares[rank]])
        return describe(
            mine, compute_advantages("rebn", mine, gamma=0.9, reduce=reduce), reduce=reduce
        )

    expected = describe(whole, compute_advantages("rebn", whole, gamma=0.9))
    for metrics in make_ranks(3).run(work):
        assert metrics == pytest.approx(expected, abs=1e-12)


def test_a_reduce_that_is_no_sum_is_refused():
    batch = TurnBatch.from_episodes([[1.0], [0.0]])
    with pytest.raises(AdvantageError, match="elementwise sum"):
        compute_advantages("rebn", batch, gamma=0.9, reduce=lambda array: array.sum())
