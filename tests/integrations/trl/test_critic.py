"""The critic beside TRL's policy: where it reads, what it learns, that padding has no effect."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from gem_core.runs.recipe.load import load_recipe
from gem_core.training.tiny import model_path
from gem_parity.frozen import frozen_episodes
from gem_trl.critic import States, TurnCritic

KEYS = ["model.tiny.warm_start_steps=0", "algorithm.estimator=gae", "algorithm.critic_lr=0.01"]


@pytest.fixture
def critic(tmp_path_factory, monkeypatch):
    """``critic(*overrides)``: a critic whose head does not start at zero."""
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path_factory.getbasetemp() / "critic"))

    def make(*overrides):
        recipe = load_recipe("guess-the-number-easy", "tiny", [*KEYS, *overrides])
        torch.manual_seed(0)
        critic = TurnCritic(recipe, model_path(recipe), Accelerator(cpu=True))
        critic.model[1].weight.data.normal_()
        return critic

    return make


STATES = [
    States([5, 9, 7, 30, 31], [1, 3], False),
    States([5, 9, 8], [1, 2], True),
    States([], [], False),
    States([*range(40, 60)], [4, 9, 18], False),
]


def learn(critic, targets):
    """One training step on `STATES`."""
    return critic.learn(STATES, critic.read(STATES), targets)


def test_states_are_before_the_actions():
    several_turns = 0
    for episode in frozen_episodes(12):
        if len(episode.segments) != 1:
            continue
        (segment,) = episode.segments
        state = States.of(episode, [])
        assert [p + 1 for p in state.positions] == [start for _, start, _ in segment.spans]
        assert not state.truncated
        longer = [*segment.token_ids, 3, 4]
        state = States.of(episode, longer)
        assert state.truncated and state.token_ids == longer
        assert state.positions[-1] == len(longer) - 1
        several_turns += len(segment.spans) > 1
    assert several_turns


def test_an_episode_is_read_alike_alone_and_in_a_batch(critic):
    together = critic().read(STATES)
    in_parts = critic("batch.micro_batch=3").read(STATES)
    assert [len(values) for values in together] == [2, 2, 0, 3]
    for state, batched, parted in zip(STATES, together, in_parts, strict=True):
        np.testing.assert_allclose(batched, parted, atol=1e-5)
        if state.positions:
            np.testing.assert_allclose(critic().read([state])[0], batched, atol=1e-5)
    assert np.ptp(np.concatenate(together)) > 0.1


def test_it_learns_targets_and_leaves_excluded_turns_alone(critic):
    targets = [np.array([1.0, -1.0]), np.array([0.5]), np.array([]), np.array([0.0, np.nan, 2.0])]
    made = critic("train.steps=60", "algorithm.epochs=4", "algorithm.lr_schedule=constant")
    losses = [learn(made, targets)["loss/value"] for _ in range(60)]
    values = made.read(STATES)
    assert losses[0] > 0.1 and losses[-1] < 0.01 * losses[0]
    np.testing.assert_allclose(values[0], targets[0], atol=0.3)
    assert values[3][2] == pytest.approx(2.0, abs=0.3)


def test_micro_batches_change_nothing(critic):
    targets = [np.array([1.0, -1.0]), np.array([0.5]), np.array([]), np.array([0.0, 1.0, 2.0])]
    whole, parts = critic(), critic("batch.micro_batch=1")
    assert learn(whole, targets) == pytest.approx(learn(parts, targets), rel=1e-5)
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)


def test_a_loaded_critic_continues_where_the_saved_one_was(critic, tmp_path):
    targets = [np.array([1.0, -1.0]), np.array([0.5]), np.array([]), np.array([0.0, 1.0, 2.0])]
    made = critic()
    learn(made, targets)
    made.save(tmp_path)
    again = critic()
    again.load(tmp_path)
    assert learn(made, targets) == learn(again, targets)
    np.testing.assert_array_equal(
        np.concatenate(made.read(STATES)), np.concatenate(again.read(STATES))
    )
