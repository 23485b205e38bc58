"""Episodes become Oat's rows: one per turn, nothing lost, nothing added."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
import torch

from gem_core.errors import GemError
from gem_core.runs.tasks import step_tasks
from gem_oat.cpu.in_process import MemoryClient
from gem_oat.rollout import pad_rows, to_native
from gem_oat.rows import SegmentRow, segment_rows, turn_rows


def test_a_row_is_a_turn(episodes, rows):
    batch = episodes()
    expected = []
    for number, episode in enumerate(batch):
        env = ["frozen:dense", "frozen:terminal"].index(episode.env_id)
        expected += segment_rows(turn_rows(episode, number, env))
    assert [data.row for data in rows] == expected
    for data in rows:
        row = data.row
        assert data.prompt_ids == list(row.turns[0].prompt)
        assert data.prompt_ids + data.response_ids == list(row.token_ids)
        sampled = [logprob for turn in row.trained for logprob in turn.logprobs]
        assert data.response_logprobs == (sampled or [0.0])
        assert data.loss_mask == bool(row.trained) and data.rewards == [0.0]


def test_a_bootstrap_state_is_last(episodes):
    episode = episodes()[1]
    *segments, state = to_native(episode, 1, 0, [4, 5, 6])
    assert segments == to_native(episode, 1, 0)
    assert state.prompt_ids == [4, 5, 6] and not state.loss_mask
    assert [turn.bootstrap_state for turn in state.row.turns] == [True]


def test_padding_is_masked(rows):
    padded = pad_rows(rows, len(rows) + 3)
    assert padded[: len(rows)] == rows
    for data in padded[len(rows) :]:
        assert not data.loss_mask and data.row == SegmentRow()
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
    assert len(rows) == len(played) < sum(len(episode.turns) for episode in played)
    again = collected(player, "1/0/1")
    assert [r.response_ids for r in again] == [r.response_ids for r in rows]
    other = collected(player, "2/0/1")
    assert [r.response_ids for r in other] != [r.response_ids for r in rows]


def test_learners_that_share_an_actor_get_equally_many_rows(recipe, actor):
    player = actor(recipe("context.history=last"))  # a row per turn
    uneven = 0
    for step in range(4):
        rows = collected(player, f"{step}/0/2", f"{step}/1/2")
        half = len(rows) // 2
        assert len(rows) == 2 * half
        parts = ((rows[:half], 8 * step), (rows[half:], 8 * step + 4))
        for part, first in parts:
            episodes = part[0].episodes
            assert [e.index for e in episodes] == [first, first + 1, first + 2, first + 3]
            numbers = [r.row.segment[0] for r in part if r.row.turns]
            assert set(numbers) == {e.index for e in episodes}
            assert len(numbers) == sum(len(e.turns) for e in episodes)
        turns = [sum(len(e.turns) for e in part[0].episodes) for part, _ in parts]
        uneven += turns[0] != turns[1]
    assert uneven, "the learners always have equally many turns: the test shows nothing"


def test_actions_end_with_the_stop_token_or_the_cap(recipe, actor):
    small = recipe("limits.max_tokens_per_turn=5")
    player = actor(small)
    for data in collected(player, "0/0/1"):
        for turn in data.row.turns:
            *before, last = turn.response
            assert last in player.factory.stop_ids or len(turn.response) == 5
            assert not set(before) & set(player.factory.stop_ids)
            assert all(logprob <= 0 for logprob in turn.logprobs)


def test_logprobs_are_the_policys(recipe, actor):
    """Batched, left-padded and cached sampling reports what a plain forward pass gives."""
    player = actor(recipe("sampling.temperature=0.7"))
    for data in collected(player, "0/0/1")[:6]:
        ids = torch.tensor([data.prompt_ids + data.response_ids])
        places = torch.cat([torch.arange(100)[turn.action] for turn in data.row.trained])
        with torch.no_grad():
            logits = player.llm.model(ids).logits[0, :-1] / 0.7
        logps = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[places, 0]
        assert data.response_logprobs == pytest.approx(logps.tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [("max_turns=1", "truncated_turns"), ("max_episode_tokens=6", "truncated_tokens")],
)
def test_the_state_after_a_limit_is_given_to_the_critic(recipe, actor, limit, reason):
    gae = recipe("algorithm.estimator=gae", f"limits.{limit}", "limits.max_tokens_per_turn=5")
    rows = collected(actor(gae), "0/0/1")
    turns = [turn for data in rows for turn in data.row.turns]
    states = [turn for turn in turns if turn.bootstrap_state]
    cut = [e for e in rows[0].episodes if e.stop_reason.value == reason]
    assert len(states) == len(cut) > 0
    assert len(rows) == len(rows[0].episodes), "a state has a row of its own"
    last_turns = {turn.episode: turn for turn in turns if turn.is_turn}
    for state in states:
        before = last_turns[state.episode]
        played = [*before.prompt, *before.response]
        assert state.prompt[: len(played)] == played and len(state.prompt) > len(played)
        assert state.excluded


def test_evaluation_has_its_own_temperature_and_draws_alike_at_every_step(recipe, actor):
    """Common random numbers: evaluations differ by the weights alone."""
    tokens = []
    for temperature in (0.0, 1.0):
        player = actor(recipe(f"eval.temperature={temperature}"))
        for step in (1, 2):
            episodes = MemoryClient(None).deserialize_ipc(player.run_eval(step, [0, 1, 2]))
            assert [episode.seed for episode in episodes] == [-1, -2, -3]
            tokens.append([segment.token_ids for e in episodes for segment in e.segments])
    assert tokens[0] == tokens[1] != tokens[2] == tokens[3]


def test_a_request_that_the_engine_gives_up_aborts_its_episode(recipe, actor):
    """vLLM says so with no tokens."""

    class GivesUpOnce:
        calls = 0

        def generate(self, **arguments):
            self.calls += 1
            first, *others = player.llm.generate(**arguments)
            if self.calls == 1:
                nothing = first.outputs[0]._replace(
                    finish_reason="abort", token_ids=(), logprobs=None
                )
                first = first._replace(outputs=[nothing])
            return [first, *others]

    player = actor(recipe())
    policy = replace(player.policy, engine=GivesUpOnce())
    machines = player.play(step_tasks(recipe(), 0), policy)
    aborted = [machine.episode.stop_reason.value == "aborted" for machine in machines]
    assert aborted == [True] + [False] * 7


class StepEngine:
    """vLLM's step loop over the stand-in; each step answers the oldest request."""

    def __init__(self, llm):
        self.llm = llm
        self.llm_engine = self
        self.waiting = {}
        self.most = 0

    def add_request(self, name, prompt, params):
        assert params.output_kind == "final"
        self.waiting[name] = (prompt["prompt_token_ids"], params)
        self.most = max(self.most, len(self.waiting))

    def has_unfinished_requests(self):
        return bool(self.waiting)

    def step(self):
        name = next(iter(self.waiting))
        prompt, params = self.waiting.pop(name)
        (output,) = self.llm.generate(
            prompt_token_ids=[prompt], sampling_params=[params], use_tqdm=False
        )
        return [SimpleNamespace(request_id=name, finished=True, outputs=output.outputs)]


def test_episodes_that_can_block_do_not_wait_for_each_other(recipe, actor, monkeypatch):
    """They are the same ones, token by token: a draw depends on the request alone."""
    kinds = ModuleType("vllm.sampling_params")
    kinds.RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", kinds)
    player = actor(recipe())
    engine = StepEngine(player.llm)
    policy = replace(player.policy, engine=engine)
    with pytest.raises(AttributeError, match="generate"):  # the game cannot block: one call a turn
        player.play(step_tasks(recipe(), 0), policy)
    expected = player.play(step_tasks(recipe(), 0), player.policy)
    monkeypatch.setattr("gem_oat.rollout.never_blocks", lambda env: False)
    stepped = player.play(step_tasks(recipe(), 0), policy)
    assert engine.most == len(stepped) == 8
    for one, other in zip(stepped, expected, strict=True):
        assert one.episode.segments == other.episode.segments
    again = player.play(step_tasks(recipe(), 0), player.policy)  # the stand-in has no step loop
    assert [m.episode.segments for m in again] == [m.episode.segments for m in expected]


def test_a_broken_environment_stops_the_run(recipe, actor, monkeypatch):
    from gem_core.envs.games.guess_the_number import GuessTheNumber

    def fail(self, action):
        raise RuntimeError("the server is gone")

    player = actor(recipe())
    monkeypatch.setattr(GuessTheNumber, "_step", fail)
    with pytest.raises(GemError, match="the server is gone"):
        collected(player, "0/0/1")
