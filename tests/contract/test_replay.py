"""One frozen batch through the real package: rows, advantages, loss and gradient agree with the
plain-torch reference, for every estimator that needs no critic."""

from __future__ import annotations

import pytest

from gem_core.advantages import list_estimators
from gem_core.errors import RecipeError
from gem_parity.measure import measure
from gem_parity.replays import load_replay

ESTIMATORS = [name for name in list_estimators() if name != "gae"]


def overrides(estimator, aggregation="token"):
    keys = [f"algorithm.estimator={estimator}", f"algorithm.loss_aggregation={aggregation}"]
    keys += ["batch.episodes=16", "batch.group_size=2", "algorithm.epochs=1"]
    if aggregation == "constant":
        keys.append("algorithm.loss_constant=40")
    return keys


@pytest.fixture(scope="module")
def replay(package):
    return load_replay(package.removeprefix("gem_")).replay


def assert_same(found, expected, *, exact=False):
    result = measure(found, expected)
    assert result.faults == []
    if exact:
        assert result.cosine >= 1 - 1e-9 and abs(result.norm) <= 1e-6


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators(replay, expect, episodes, tiny, model_dir, trainer_name, estimator):
    recipe = tiny(*overrides(estimator))
    found = replay(recipe, episodes(), model_dir)
    assert_same(found, expect(recipe, episodes()), exact=trainer_name == "trl")


@pytest.mark.parametrize("aggregation", ["sequence", "constant"])
def test_loss_aggregations(replay, expect, config, refused, episodes, tiny, model_dir, aggregation):
    recipe = tiny(*overrides("rebn", aggregation))
    if aggregation == "constant" and "algorithm.loss_constant" in refused:
        with pytest.raises(RecipeError, match=r"algorithm\.loss_constant"):
            config.translate(recipe)
        return
    config.translate(recipe)
    found = replay(recipe, episodes(), model_dir)
    assert_same(found, expect(recipe, episodes()))


def test_the_frozen_batch_holds_what_it_promises(episodes):
    batch = episodes()
    reasons = {episode.stop_reason.value for episode in batch}
    limits = {"truncated_turns", "truncated_tokens", "context_overflow"}
    assert reasons >= {"terminated", "env_error", *limits}
    for reason in limits:
        cut = [episode for episode in batch if episode.stop_reason.value == reason]
        assert any(episode.turns[-1].reward for episode in cut)
    assert len({len(episode.turns) for episode in batch}) >= 4
    assert any(turn.finish_reason.value == "length" for e in batch for turn in e.turns)


def shift_masks(batch):
    for segment in (s for e in batch for s in e.segments):
        segment.loss_mask = [0, *segment.loss_mask[:-1]]
        end = len(segment.token_ids)
        segment.spans = [(t, s + 1, min(e + 1, end)) for t, s, e in segment.spans]


def drop_a_turn_reward(batch):
    turn = next(t for e in batch for t in e.turns[:-1] if t.reward and not t.aborted)
    turn.reward = 0.0


def drop_the_last_reward_at_a_limit(batch):
    episode = next(e for e in batch if e.stop_reason.value == "truncated_turns")
    episode.turns[-1].reward = 0.0


def drop_an_episode(batch):
    victim = next(e for e in batch if not e.stop_reason.failed)
    victim.exclude()


def change_a_token(batch):
    segment = batch[0].segments[0]
    segment.token_ids[segment.spans[0][1]] += 1


@pytest.mark.parametrize(
    "fault",
    [
        shift_masks,
        drop_a_turn_reward,
        drop_the_last_reward_at_a_limit,
        drop_an_episode,
        change_a_token,
    ],
)
def test_a_fault_in_the_data_is_found(replay, expect, episodes, tiny, model_dir, fault):
    recipe, broken = tiny(*overrides("rebn")), episodes()
    fault(broken)
    found = replay(recipe, broken, model_dir)
    assert measure(found, expect(recipe, episodes())).faults


@pytest.mark.parametrize("other", ["reinforce", "grpo"])
def test_another_estimator_is_found(replay, expect, episodes, tiny, model_dir, other):
    found = replay(tiny(*overrides(other)), episodes(), model_dir)
    assert measure(found, expect(tiny(*overrides("rebn")), episodes())).faults
