"""Episodes become Oat's rows: one per turn, nothing lost, nothing added."""

from __future__ import annotations

import pytest
import torch

from gem_core.errors import GemError
from gem_core.training.tasks import step_tasks
from gem_oat.cpu.in_process import MemoryClient
from gem_oat.rollout import pad_rows
from gem_oat.rows import Row, state_rows, turn_rows


def test_a_row_is_a_turn(episodes, rows):
    batch = episodes()
    assert len(rows) == sum(len(episode.turns) for episode in batch)
    for data in rows:
        row = data.row
        episode = batch[row.episode]
        segment, turn = episode.segments[row.segment], episode.turns[row.turn]
        start, end = len(data.prompt_ids), len(data.prompt_ids) + len(data.response_ids)
        assert (row.turn, start, end) in segment.spans
        assert data.prompt_ids + data.response_ids == segment.token_ids[:end]
        assert data.response_logprobs == segment.logprobs[start:end]
        assert data.rewards == [0.0] * (end - start - 1) + [turn.reward]
        assert data.response == turn.action and row.reward == turn.reward
        assert row.group == episode.group


def test_turns_of_failed_episodes_stay_masked(episodes, rows):
    failed = {n for n, e in enumerate(episodes()) if e.stop_reason.failed}
    masked = {data.row.episode for data in rows if not data.loss_mask}
    assert failed and masked == failed
    assert all(data.loss_mask != data.row.excluded for data in rows)


def test_half_masked_turns_are_refused(episodes):
    episode = episodes()[0]
    _, start, end = episode.segments[0].spans[0]
    episode.segments[0].loss_mask[start] = 0
    assert end - start > 1
    with pytest.raises(GemError, match="Episode 3, turn 0"):
        turn_rows(episode, 3, 0)


def test_missing_logprobs_are_refused(episodes):
    episode = episodes()[0]
    episode.segments[0].logprobs = None
    with pytest.raises(GemError, match="log-probability"):
        turn_rows(episode, 0, 0)


def test_padding_is_masked(rows):
    padded = pad_rows(rows, len(rows) + 3)
    assert padded[: len(rows)] == rows
    for data in padded[len(rows) :]:
        assert not data.loss_mask and data.row == Row(-1)
        assert len(data.response_ids) == len(data.response_logprobs) == len(data.rewards) == 1


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_shards_are_the_step_in_order_with_whole_groups(recipe, shards):
    grouped = recipe("batch.episodes=16", "batch.group_size=4", "algorithm.estimator=grpo")
    parts = [step_tasks(grouped, 3, shard, shards) for shard in range(shards)]
    assert [task for part in parts for task in part] == step_tasks(grouped, 3)
    groups = [{task.group for task in part} for part in parts]
    assert sum(map(len, groups)) == len(set().union(*groups)) == 4


@pytest.fixture
def actor(learner):
    """``actor(recipe)``: an actor with its engine, as the learner would make it."""

    def build(recipe):
        actor = learner(recipe).actors[0].actor
        actor.init(0, "")
        return actor

    return build


def collected(actor, *prompts):
    return MemoryClient(None).deserialize_ipc(actor.step(list(prompts), list(prompts)))


def test_the_actor_plays_its_tasks_and_can_repeat_them(recipe, actor):
    small = recipe()
    player = actor(small)
    rows = collected(player, "1/0/1")
    played = rows[0].episodes
    assert [(e.index, e.seed) for e in played] == [(t.index, t.seed) for t in step_tasks(small, 1)]
    assert len(rows) == sum(len(episode.turns) for episode in played)
    again = collected(player, "1/0/1")
    assert [r.response_ids for r in again] == [r.response_ids for r in rows]
    other = collected(player, "2/0/1")
    assert [r.response_ids for r in other] != [r.response_ids for r in rows]


def test_learners_that_share_an_actor_get_equally_many_rows(recipe, actor):
    player, uneven = actor(recipe()), 0
    for step in range(4):
        rows = collected(player, f"{step}/0/2", f"{step}/1/2")
        half = len(rows) // 2
        assert len(rows) == 2 * half
        parts = ((rows[:half], 8 * step), (rows[half:], 8 * step + 4))
        for part, first in parts:
            episodes = part[0].episodes
            assert [e.index for e in episodes] == [first, first + 1, first + 2, first + 3]
            assert {r.row.episode for r in part} - {-1} == {e.index for e in episodes}
            assert sum(r.row.episode >= 0 for r in part) == sum(len(e.turns) for e in episodes)
        turns = [sum(len(e.turns) for e in part[0].episodes) for part, _ in parts]
        uneven += turns[0] != turns[1]
    assert uneven, "the learners always have equally many turns: the test shows nothing"


def test_actions_end_with_the_stop_token_or_the_cap(recipe, actor):
    small = recipe("limits.max_tokens_per_turn=5")
    player = actor(small)
    for data in collected(player, "0/0/1"):
        closed = data.response_ids[-1] in player.factory.stop_ids
        assert closed or len(data.response_ids) == 5
        assert not set(data.response_ids[:-1]) & set(player.factory.stop_ids)
        assert all(logprob <= 0 for logprob in data.response_logprobs)


def test_logprobs_are_the_policys(recipe, actor):
    """Batched, left-padded and cached sampling reports what a plain forward pass gives."""
    player = actor(recipe("sampling.temperature=0.7"))
    for data in collected(player, "0/0/1")[:6]:
        ids, start = torch.tensor([data.prompt_ids + data.response_ids]), len(data.prompt_ids)
        with torch.no_grad():
            logits = player.llm.model(ids).logits[0, :-1] / 0.7
        logps = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[start - 1 :, 0]
        assert data.response_logprobs == pytest.approx(logps.tolist(), abs=1e-4)


def test_the_state_after_a_turn_limit_is_given_to_the_critic(recipe, actor):
    gae = recipe("algorithm.estimator=gae", "limits.max_turns=1", "limits.max_tokens_per_turn=5")
    rows = collected(actor(gae), "0/0/1")
    states = [data for data in rows if data.row.state]
    cut = [e for e in rows[0].episodes if e.stop_reason.value == "truncated_turns"]
    assert len(states) == len(cut) > 0
    by_episode = {r.row.episode: r for r in rows if not r.row.state}
    for state in states:
        before = by_episode[state.row.episode]
        played = before.prompt_ids + before.response_ids
        assert state.prompt_ids[: len(played)] == played and len(state.prompt_ids) > len(played)
        assert not state.loss_mask and state.row.excluded


def test_other_ends_have_no_state(recipe, actor):
    player = actor(recipe("algorithm.estimator=gae"))
    for machine in player._play(step_tasks(recipe(), 0), "x", {"temperature": 1.0}):
        if machine.episode.stop_reason.value != "truncated_turns":
            assert state_rows(machine, 0, 0) == []


def test_a_broken_environment_stops_the_run(recipe, actor, monkeypatch):
    from gem_core.envs.games.guess_the_number import GuessTheNumber

    def fail(self, action):
        raise RuntimeError("the server is gone")

    player = actor(recipe())
    monkeypatch.setattr(GuessTheNumber, "_step", fail)
    with pytest.raises(GemError, match="the server is gone"):
        collected(player, "0/0/1")
