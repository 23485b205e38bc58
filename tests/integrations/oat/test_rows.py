"""Rows of turns: what they hold, their advantages in any order, weights that make sums means."""

from __future__ import annotations

import numpy as np
import pytest

from gem_core.advantages import TurnBatch, compute_advantages, gae, list_estimators, value_targets
from gem_core.episodes.machine import Limits
from gem_core.errors import GemError
from gem_core.parity.frozen import frozen_episodes
from gem_core.parity.replay import turn_advantages
from gem_core.training.recipe import AlgorithmConfig, load_recipe
from gem_oat.rows import Row, estimate_rows, loss_weights, state_rows, turn_rows


@pytest.fixture
def batch():
    return frozen_episodes(16, group_size=2)


def rows_of(episodes):
    ids = sorted({e.env_id for e in episodes})
    return [r for n, e in enumerate(episodes) for r in turn_rows(e, n, ids.index(e.env_id))]


def shuffled(rows, seed=0):
    order = np.random.RandomState(seed).permutation(len(rows))
    return [rows[n] for n in order]


def test_rows_are_the_turns(batch):
    rows = rows_of(batch)
    assert [(r.episode, r.turn) for r in rows] == [
        (n, t.index) for n, e in enumerate(batch) for t in e.turns
    ]
    for row in rows:
        episode, turn = batch[row.episode], batch[row.episode].turns[row.turn]
        segment, start = episode.segments[row.segment], len(row.prompt)
        end = start + len(row.response)
        assert (row.turn, start, end) in segment.spans
        assert [*row.prompt, *row.response] == segment.token_ids[:end]
        assert row.logprobs == segment.logprobs[start:end]
        assert (row.reward, row.group, row.excluded) == (turn.reward, episode.group, turn.aborted)
        assert row.texts == (turn.observation, turn.action)
    assert any(row.excluded for row in rows) and not all(row.excluded for row in rows)


def test_what_a_row_cannot_hold_is_refused(batch):
    _, start, end = batch[0].segments[0].spans[0]
    assert end - start > 1
    batch[0].segments[0].loss_mask[start] = 0
    with pytest.raises(GemError, match="Episode 3, turn 0"):
        turn_rows(batch[0], 3, 0)
    batch[1].segments[0].logprobs = None
    with pytest.raises(GemError, match="log-probability"):
        turn_rows(batch[1], 0, 0)


@pytest.mark.parametrize("estimator", [name for name in list_estimators() if name != "gae"])
def test_any_order_and_padding_give_the_estimators_advantages(batch, estimator):
    names = [f"algorithm.estimator={estimator}", "batch.group_size=2", "algorithm.gamma=0.9"]
    recipe = load_recipe("guess-the-number-easy", "tiny", names)
    expected = turn_advantages(recipe, batch)
    rows = shuffled([*rows_of(batch), Row(-1), Row(-1)])
    found = estimate_rows(rows, recipe.algorithm)
    assert found.targets is None
    for row, advantage in zip(rows, found.advantages, strict=True):
        wanted = 0.0 if row.episode < 0 else expected[row.episode][row.turn]
        assert advantage == pytest.approx(wanted, abs=1e-12)


def test_values_and_the_bootstrap_of_a_state_are_read():
    settings = AlgorithmConfig(estimator="gae", gamma=0.9, lam=0.8)
    rows = [Row(-1), Row(4, 1, reward=1.0, excluded=False), Row(4, 2, state=True)]
    rows += [Row(2, 0, reward=0.5, excluded=False), Row(4, 0, excluded=False)]
    found = estimate_rows(rows, settings, values=np.array([9.0, 0.2, 0.4, 0.3, 0.1]))
    turns = TurnBatch(
        rewards=[0.5, 0.0, 1.0], episode=[2, 4, 4], values=[0.3, 0.1, 0.2], bootstrap=[0, 0.4, 0.4]
    )
    expected = gae(turns, gamma=0.9, lam=0.8)
    np.testing.assert_allclose(found.advantages[[3, 4, 1]], expected)
    np.testing.assert_allclose(found.targets[[3, 4, 1]], value_targets(expected, turns.values))
    assert found.advantages[[0, 2]].tolist() == found.targets[[0, 2]].tolist() == [0.0, 0.0]


def test_other_rewards_replace_the_rows_own():
    rows = [Row(0, 1, reward=5.0, excluded=False), Row(0, 0, reward=5.0, excluded=False)]
    settings = AlgorithmConfig(estimator="reinforce", gamma=0.5)
    found = estimate_rows(rows, settings, rewards=np.array([2.0, 1.0]))
    expected = compute_advantages(
        "reinforce", TurnBatch(rewards=[1.0, 2.0], episode=[0, 0]), gamma=0.5, lam=0.95
    )
    np.testing.assert_allclose(found.advantages[[1, 0]], expected)


def test_a_rank_without_rows_takes_part():
    assert estimate_rows([], AlgorithmConfig()).advantages.shape == (0,)


def played(kit, answer, **limits):
    machine = kit.machine(kit.going("seen", 0.5), kit.won(), limits=Limits(**limits))
    prompt = machine.start()
    while prompt is not None:
        prompt = machine.feed(answer)
    return machine


def test_the_state_after_a_turn_limit_goes_on_where_the_episode_stopped(kit):
    for answer in (kit.complete("ab"), kit.complete("abc", stop=False)):
        machine = played(kit, answer, max_turns=1)
        (state,) = state_rows(machine, 7, 3)
        (turn,) = turn_rows(machine.episode, 7, 3)
        full = played(kit, answer)
        longer = turn_rows(full.episode, 0, 0)[1].prompt
        assert (state.episode, state.turn, state.env) == (7, 1, 3)
        assert state.state and state.excluded and state.prompt == longer
        assert state.prompt[: len(turn.prompt) + 3] == [*turn.prompt, *turn.response]


def test_other_ends_and_full_contexts_have_no_state(kit):
    answer = kit.complete("ab")
    assert state_rows(played(kit, answer), 0, 0) == []
    room = len(state_rows(played(kit, answer, max_turns=1), 0, 0)[0].prompt)
    for limit, count in ((room, 0), (room + 1, 1)):
        machine = played(kit, answer, max_turns=1, max_context_tokens=limit)
        assert len(state_rows(machine, 0, 0)) == count


TURNS = [
    Row(0, 0, excluded=False, response=range(3)), Row(0, 1, excluded=False, response=range(1)),
    Row(1, 0, excluded=False, response=range(4)), Row(2, 0, excluded=True, response=range(9)),
    Row(-1),
]  # fmt: skip


@pytest.mark.parametrize(("aggregation", "constant", "expected"), [
    ("token", None, [1 / 8, 1 / 8, 1 / 8, 0, 0]),
    ("sequence", None, [1 / 8, 1 / 8, 1 / 8, 0, 0]),
    ("constant", 5, [1 / 10, 1 / 10, 1 / 10, 0, 0]),
])  # fmt: skip
def test_weights_are_those_of_the_aggregation(aggregation, constant, expected):
    settings = AlgorithmConfig(loss_aggregation=aggregation, loss_constant=constant)
    found = loss_weights(TURNS, settings)
    np.testing.assert_allclose(found.policy, expected)
    np.testing.assert_allclose(found.token, [1 / 8] * 3 + [0, 0])
    np.testing.assert_allclose(found.turn, [1 / 3] * 3 + [0, 0])


def test_a_sequences_mean_is_over_its_own_tokens():
    rows = [*TURNS[:2], TURNS[2]._replace(response=range(2))]
    found = loss_weights(rows, AlgorithmConfig(loss_aggregation="sequence"))
    np.testing.assert_allclose(found.policy, [1 / 8, 1 / 8, 1 / 4])


def test_ranks_share_one_sum_and_nothing_trained_weighs_nothing():
    double = loss_weights(TURNS, AlgorithmConfig(), lambda array: 2 * array)
    np.testing.assert_allclose(double.policy, loss_weights(TURNS, AlgorithmConfig()).policy / 2)
    for weights in loss_weights([Row(-1)] * 3, AlgorithmConfig()):
        assert weights.tolist() == [0.0] * 3
