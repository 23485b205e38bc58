"""The reference's loops against the estimators: two implementations of the same definitions."""

from __future__ import annotations

import numpy as np
import pytest

from gem_adapters.turn_batch import turn_batch
from gem_core.advantages import (
    TurnBatch,
    compute_advantages,
    gae,
    get_estimator,
    list_estimators,
)
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import AlgorithmConfig
from gem_parity import reference_advantages
from gem_parity.frozen import frozen_episodes
from gem_parity.reference_advantages import TrainedTurns
from gem_parity.replay import turn_advantages

OPTIONS = [
    ("reinforce", {}),
    ("rebn", {}),
    ("rebn", {"per_env": True}),
    ("rebn", {"ddof": 1, "eps": 0.5}),
    ("grpo", {}),
    ("grpo", {"eps": 0.1}),
    ("grpo", {"std": False}),
    ("dr_grpo", {}),
    ("rloo", {}),
]


def test_every_estimator_without_a_critic_is_here():
    # Other tests of the process may have registered estimators of their own.
    shipped = {n for n in list_estimators() if get_estimator(n).__module__.startswith("gem_core.")}
    assert {name for name, _ in OPTIONS} == shipped - {"gae"}


@pytest.mark.parametrize(("name", "options"), OPTIONS)
@pytest.mark.parametrize("group_size", [1, 2, 4])
def test_the_same_advantages(name, options, group_size):
    episodes = frozen_episodes(16, group_size=group_size)
    algorithm = AlgorithmConfig(estimator=name, options=options, gamma=0.9)
    recipe = load_recipe("guess-the-number-easy", "tiny")
    from msgspec.structs import replace

    expected = turn_advantages(replace(recipe, algorithm=algorithm), episodes)
    actual = compute_advantages(name, turn_batch(episodes), gamma=0.9, **options)
    flat = [number for row in expected for number in row]
    np.testing.assert_allclose(actual, flat, atol=1e-12)


@pytest.mark.parametrize("whiten", [False, True])
def test_gae_with_bootstraps(whiten):
    rng = np.random.default_rng(0)
    rewards = [rng.normal(size=length).tolist() for length in (3, 1, 4)]
    values = [rng.normal(size=length).tolist() for length in (3, 1, 4)]
    ends = [0.0, 0.7, -0.4]
    algorithm = AlgorithmConfig(
        estimator="gae", gamma=0.9, lam=0.8, options={"whiten": True} if whiten else {}
    )
    played = [
        TrainedTurns(n, "one", list(range(len(row))), row, value, end)
        for n, (row, value, end) in enumerate(zip(rewards, values, ends, strict=True))
    ]
    expected = reference_advantages.advantages(algorithm, played)
    batch = TurnBatch.from_episodes(rewards, values=values, bootstraps=ends)
    actual = gae(batch, gamma=0.9, lam=0.8, whiten=whiten)
    np.testing.assert_allclose(actual, [n for row in expected for n in row], atol=1e-12)


def test_a_constant_batch_has_no_advantage():
    played = [
        TrainedTurns(0, "one", [0, 1], [0.0, 1.0]),
        TrainedTurns(0, "one", [0, 1], [0.0, 1.0]),
    ]
    for name in ("rebn", "grpo"):
        algorithm = AlgorithmConfig(estimator=name, gamma=1.0)
        assert reference_advantages.advantages(algorithm, played) == [[0.0, 0.0], [0.0, 0.0]]


def test_limits_of_every_kind_have_rewards_and_a_last_state():
    from gem_parity.frozen import frozen_batch

    batches = [frozen_batch(16, seed=seed) for seed in range(4)]
    cut = {}
    for batch in batches:
        for episode, machine in zip(batch.episodes, batch.machines, strict=True):
            if episode.stop_reason.truncated and episode.turns[-1].reward:
                cut.setdefault(episode.stop_reason.value, []).append(machine.bootstrap_state())
    assert cut.keys() == {"truncated_turns", "truncated_tokens", "context_overflow"}
    assert any(cut["truncated_turns"])
    assert any(cut["truncated_tokens"])


def test_the_tasks_of_later_steps_follow():
    from gem_parity.recorded import recorded_run

    recipe = load_recipe(
        "guess-the-number-easy", "tiny", ["train.steps=3", "batch.episodes=8", "batch.group_size=2"]
    )
    run = recorded_run(recipe)
    assert [e.index for batch in run for e in batch.episodes] == list(range(24))
    assert [e.group for batch in run for e in batch.episodes] == [n // 2 for n in range(24)]
    assert {e.env_id for batch in run for e in batch.episodes} == {
        "frozen:dense",
        "frozen:terminal",
    }
    assert any(e.stop_reason.failed for batch in run for e in batch.episodes)
