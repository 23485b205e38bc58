"""Advantages of Oat's rows are gem_core's, in any order, with padding, and over ranks."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oat.utils.launcher import get_free_port

from gem_adapters.estimate import estimate
from gem_adapters.turn_batch import turn_batch
from gem_core.advantages import (
    TurnBatch,
    compute_advantages,
    estimator_needs,
    gae,
    list_estimators,
    register_estimator,
    value_targets,
)
from gem_core.errors import AdvantageError, GemError
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.recipe.recipe import AlgorithmConfig
from gem_oat.advantages import GemAdvantages, estimate_rows, require_installed
from gem_oat.rows import Row, SegmentRow

CRITIC_FREE = [name for name in list_estimators() if name != "gae"]


def turns_of(rows):
    return [turn for data in rows for turn in data.row.turns]


def with_padding_in_any_order(rows, seed=0):
    padded = turns_of(rows) + [Row(-1)] * 3
    order = np.random.RandomState(seed).permutation(len(padded))
    return [padded[n] for n in order]


@pytest.mark.parametrize("estimator", CRITIC_FREE)
def test_the_same_numbers_as_from_episodes(recipe, episodes, rows, estimator):
    """To the last digit, metrics included: the other way from episodes to advantages."""
    discounts = "gamma" not in estimator_needs(estimator).ignores
    gamma = ["algorithm.gamma=0.9"] if discounts else []
    grouped = recipe(f"algorithm.estimator={estimator}", "batch.group_size=2", *gamma)
    batch = turn_batch(episodes())
    expected = estimate(batch, grouped.algorithm)
    per_episode = batch.by_episode(expected.advantages)
    any_order = with_padding_in_any_order(rows)
    estimated = estimate_rows(any_order, grouped.algorithm)
    for row, advantage in zip(any_order, estimated.advantages, strict=True):
        assert advantage == (per_episode[row.episode][row.turn] if row.is_turn else 0.0)
    assert estimated.targets is None
    assert estimated.metrics == expected.metrics
    assert any(row.is_turn and row.excluded for row in any_order)


def test_options_and_third_party_estimators_arrive(recipe, rows):
    @register_estimator("oat-test-scaled")
    def scaled(batch, *, gamma, lam, reduce, factor=1.0):
        return factor * batch.rewards

    data = recipe("algorithm.estimator=oat-test-scaled").to_dict()
    data["algorithm"]["options"] = {"factor": 3.0}
    turns = turns_of(rows)
    advantages = estimate_rows(turns, recipe_from_dict(data).algorithm).advantages
    assert advantages.tolist() == [0.0 if r.excluded else 3.0 * r.reward for r in turns]


def test_equal_returns_give_zero_and_never_nan(recipe):
    # E[x^2] - E[x]^2 in float32 is negative for eight times 0.9: GEM's own formula gives NaN.
    turns = [Row(n, reward=0.9, excluded=False) for n in range(8)]
    returns = torch.full((8,), 0.9)
    assert torch.sqrt((returns**2).sum() / 8 - (returns.sum() / 8) ** 2).isnan()
    estimated = estimate_rows(turns, recipe("algorithm.estimator=rebn").algorithm)
    assert estimated.advantages.tolist() == [0.0] * 8
    assert estimated.metrics["advantage/constant"] == 1.0


@pytest.mark.parametrize("whiten", [False, True])
def test_gae_reads_values_and_bootstraps_at_truncation(whiten):
    settings = AlgorithmConfig(
        estimator="gae", gamma=0.9, lam=0.8, options={"whiten": True} if whiten else {}
    )
    rows = [
        Row(-1),
        Row(4, 1, reward=1.0, excluded=False),
        Row(4, 2, bootstrap_state=True),
        Row(2, 0, reward=0.5, excluded=False),
        Row(4, 0, excluded=False),
    ]
    estimated = estimate_rows(rows, settings, values=np.array([9.0, 0.2, 0.4, 0.3, 0.1]))
    turns = TurnBatch(
        rewards=[0.5, 0.0, 1.0], episode=[2, 4, 4], values=[0.3, 0.1, 0.2], bootstrap=[0, 0.4, 0.4]
    )
    expected = compute_advantages("gae", turns, gamma=0.9, lam=0.8, whiten=whiten)
    targets = value_targets(gae(turns, gamma=0.9, lam=0.8), turns.values)
    in_time_order = [3, 4, 1]
    assert estimated.advantages[in_time_order].tolist() == expected.tolist()
    assert estimated.targets[in_time_order].tolist() == targets.tolist()
    others = [0, 2]
    assert estimated.advantages[others].tolist() == [0.0, 0.0]
    assert estimated.targets[others].tolist() == [0.0, 0.0]


def test_other_rewards_replace_the_rows_own():
    rows = [Row(0, 1, reward=5.0, excluded=False), Row(0, 0, reward=5.0, excluded=False)]
    settings = AlgorithmConfig(estimator="reinforce", gamma=0.5)
    estimated = estimate_rows(rows, settings, rewards=np.array([2.0, 1.0]))
    assert estimated.advantages[[1, 0]].tolist() == [1.0 + 0.5 * 2.0, 2.0]


def test_the_same_turn_twice_is_an_error():
    rows = [Row(0, 1, excluded=False), Row(0, 1, excluded=False)]
    with pytest.raises(AdvantageError, match="same label"):
        estimate_rows(rows, AlgorithmConfig())


def test_a_rank_without_rows_takes_part():
    calls = []

    def reduce(array):
        calls.append(len(array))
        return array

    for estimator in CRITIC_FREE:
        settings = AlgorithmConfig(estimator=estimator)
        calls.clear()
        assert estimate_rows([], settings, reduce).advantages.shape == (0,)
        without_rows = list(calls)
        calls.clear()
        estimate_rows([Row(0, excluded=False), Row(1), Row(-1)], settings, reduce)
        assert calls == without_rows


def test_oats_hook_returns_the_estimate_and_is_noticed(recipe):
    rows = [Row(n, reward=reward, excluded=False) for n, reward in enumerate((0.1, 0.7, 0.3))]
    learner = SimpleNamespace(
        rows=rows,
        segments=[SegmentRow(turns=(row,)) for row in rows],
        args=SimpleNamespace(reward_scale=1.0),
        recipe=recipe("algorithm.estimator=reinforce"),
        reduce=lambda array: array,
        summary={},
    )
    for name in ("turn_rewards", "places", "_estimate"):
        setattr(learner, name, getattr(GemAdvantages, name).__get__(learner))
    with pytest.raises(GemError, match="did not ask gem_core for advantages"):
        require_installed(learner)
    no_penalty = torch.zeros(3, 2)
    advantages = GemAdvantages.compute_monte_carlo_advantages(learner, no_penalty, None)
    assert advantages.tolist() == pytest.approx([0.1, 0.7, 0.3])
    require_installed(learner)


def test_two_ranks_make_one_batch(recipe, rows, tmp_path):
    """Over gloo, also with nothing on the first rank: every rank joins every reduction."""
    rebn = recipe("algorithm.estimator=rebn", "algorithm.gamma=0.9")
    turns = turns_of(rows)
    cases = [
        [[r for r in turns if (r.episode < cut) == first] for first in (True, False)]
        for cut in (10, 0)
    ]
    (tmp_path / "cases.pkl").write_bytes(pickle.dumps((rebn, cases)))
    command = [sys.executable, str(Path(__file__).with_name("two_ranks.py"))]
    port = str(get_free_port())
    workers = [subprocess.Popen([*command, str(n), port, str(tmp_path)]) for n in range(2)]
    try:
        assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    ranks = [pickle.loads((tmp_path / f"{n}.pkl").read_bytes()) for n in range(2)]
    expected = estimate_rows(turns, rebn.algorithm)
    for first, second in zip(*ranks, strict=True):
        both = np.concatenate([first.advantages, second.advantages])
        np.testing.assert_allclose(both, expected.advantages, atol=1e-12)
        assert first.metrics == pytest.approx(expected.metrics) == second.metrics
