"""verl's agent loop with a stub client: tokens, masks, log-probs and rewards, one by one."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import count

import numpy as np
import pytest
from verl.workers.rollout.replica import TokenOutput

from gem_adapters.token_rows import final_values, read_labels
from gem_core.env.interface import Env
from gem_core.env.registration import register
from gem_core.episodes.data import Episode, FinishReason, Segment, StopReason, Turn
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.request_seed import request_seed
from gem_core.episodes.rollout import Request
from gem_core.errors import GemError
from gem_core.runs.tasks import MachineFactory, Task, eval_task, train_task
from gem_verl.rollout import EnginePolicy, to_native


class Slow(Env):
    """Hangs, or raises, at its second step."""

    def __init__(self, raises: bool = False) -> None:
        super().__init__()
        self.raises = raises
        self.count = 0

    def _reset(self, options):
        self.count = 0
        return "go", {}

    def _step(self, action):
        self.count += 1
        if self.count == 2:
            if self.raises:
                raise RuntimeError("scripted fault")
            time.sleep(3)
        return "more", 1.0, False, False, {}


for _id, _raises in (("verltest:Hangs", False), ("verltest:Raises", True)):
    register(_id, f"{__name__}:Slow", raises=_raises)


def episode_of(samples):
    return Episode.from_dict(json.loads(samples[0].extra_fields["episode"]))


def stopping(tokenizer):
    """An engine that guesses 1, 2, 3 ... and stops by a stop token, numbering its log-probs."""
    guesses = count(1)
    numbers = count(0)

    def answer(prompt_ids, sampling):
        ids = tokenizer.encode(f"\\boxed{{{next(guesses)}}}", add_special_tokens=False)
        ids.append(sampling["stop_token_ids"][0])
        return TokenOutput(
            token_ids=ids,
            log_probs=[-float(next(numbers)) for _ in ids],
            extra_fields={"min_global_steps": 3, "max_global_steps": 4},
        )

    return answer


def test_samples_are_aligned_token_by_token(play_task, tiny, tokenizer):
    recipe = tiny()
    samples, client = play_task(recipe, stopping(tokenizer))
    (sample,) = samples
    episode = episode_of(samples)
    fields = sample.as_dict()
    (segment,) = episode.segments
    ids = [*fields["prompts"].tolist(), *fields["responses"].tolist()]
    assert ids == segment.token_ids
    start = len(fields["prompts"])
    assert fields["response_mask"].tolist() == segment.loss_mask[start:]
    assert fields["rollout_log_probs"].tolist() == pytest.approx(segment.logprobs[start:])
    rewards = {end - 1 - start: episode.turns[t].reward for t, _, end in segment.spans}
    assert [rewards.get(i, 0.0) for i in range(len(ids) - start)] == pytest.approx(
        fields["rm_scores"].tolist()
    )
    assert len(client.requests) == len(episode.turns) > 1
    for (_, prompt, _), (_, begin, end) in zip(client.requests, segment.spans, strict=True):
        assert prompt == segment.token_ids[:begin]
        assert 1 <= end - begin <= recipe.limits.max_tokens_per_turn
    assert len({request for request, _, _ in client.requests}) == 1  # one server per episode


def test_the_engine_is_asked_for_the_recipes_tokens(play_task, tiny, tokenizer):
    recipe = tiny("limits.max_episode_tokens=14", "limits.max_tokens_per_turn=6")
    samples, client = play_task(recipe, stopping(tokenizer))
    caps = [sampling["max_tokens"] for _, _, sampling in client.requests]
    assert caps[0] == 6 and min(caps) >= 1
    stop_ids = MachineFactory(recipe, tokenizer).stop_ids
    assert all(sampling["stop_token_ids"] == stop_ids for _, _, sampling in client.requests)
    seeds = [request_seed(0, "train", 0, 0, turn) for turn in range(len(client.requests))]
    assert [sampling["seed"] for _, _, sampling in client.requests] == seeds
    assert episode_of(samples).stop_reason is StopReason.TRUNCATED_TOKENS
    assert samples[0].extra_fields["min_global_steps"] == 3
    assert samples[0].extra_fields["max_global_steps"] == 4


def test_tasks_are_the_cores(play_task, tiny, sample_from):
    recipe = tiny("batch.group_size=2")
    for index in (0, 1, 9):
        episode = episode_of(play_task(recipe, sample_from(), index)[0])
        task = train_task(recipe, index)
        assert (episode.index, episode.seed, episode.group) == (index, task.seed, task.group)
    evaluation = play_task(recipe, sample_from(), 3, data_source="gem:eval")[0]
    assert episode_of(evaluation).seed == eval_task(recipe, 3).seed < 0


def test_a_task_of_another_step_is_a_fault(play_task, tiny, sample_from):
    samples, _ = play_task(tiny(), sample_from(), 9, global_steps=1)
    assert "does not belong to step 1" in samples[0].extra_fields["fault"]


def test_row_per_turn_where_the_history_rewrites_itself(play_task, tiny, tokenizer):
    recipe = tiny("context.history=last")
    samples, _ = play_task(recipe, stopping(tokenizer))
    episode = episode_of(samples)
    assert len(samples) == len(episode.turns) > 1
    labels = read_labels([s.extra_fields["label"] for s in samples])
    assert [label.turn for label in labels] == list(range(len(samples)))
    assert {label.episode for label in labels} == {0}
    assert [s.as_dict()["rm_scores"].sum().item() for s in samples] == pytest.approx(
        [turn.reward for turn in episode.turns]
    )
    assert [s.extra_fields["episode"] is None for s in samples] == [False] + [True] * (
        len(samples) - 1
    )


def fault_of(samples):
    (sample,) = samples
    assert sample.as_dict()["response_mask"].tolist() == [0]
    return sample.extra_fields["fault"]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (TokenOutput(token_ids=[5], log_probs=[-1.0]), "strips them"),
        (TokenOutput(token_ids=[], log_probs=[]), "returned 0 of"),
        (TokenOutput(token_ids=[5] * 9, log_probs=[-1.0] * 9), "9 tokens"),
        (TokenOutput(token_ids=[5] * 8, log_probs=[-1.0] * 3), "3 log-probabilities of 8"),
    ],
    ids=["stop token stripped", "nothing", "more than the cap", "logprobs missing"],
)
def test_a_fault_of_the_engine_reaches_the_trainer(play_task, tiny, output, message):
    assert message in fault_of(play_task(tiny(), lambda *_: output)[0])


def unlisted(*_):
    """An engine that stops after a token that is no stop token of the tokenizer."""
    return TokenOutput(token_ids=[5], log_probs=[-1.0], stop_reason="completed")


def test_a_stop_token_that_only_the_model_lists_ends_a_turn(play_task, tiny):
    (sample,), client = play_task(tiny(), unlisted)
    turns = episode_of([sample]).turns
    assert sample.extra_fields["fault"] is None
    assert len(turns) == len(client.requests)
    assert [turn.finish_reason for turn in turns] == [FinishReason.STOP]
    assert sum(sample.response_mask) == 1, "the action is trained on"


def test_a_full_context_is_no_stop():
    request = Request([7, 8], 8, None)
    for context, reason in ((3, "completed"), (4, "stop"), (None, "stop")):
        policy = EnginePolicy(None, {}, [2], context=context)
        assert policy._reason(unlisted(), request) == reason


def test_an_aborted_request_is_an_aborted_episode(play_task, tiny):
    samples, _ = play_task(tiny(), lambda *_: TokenOutput(token_ids=[], stop_reason="aborted"))
    assert episode_of(samples).stop_reason is StopReason.ABORTED
    assert not any(samples[0].response_mask)


@pytest.mark.parametrize(
    ("env", "reason"),
    [("verltest:Raises", StopReason.ENV_ERROR), ("verltest:Hangs", StopReason.DEADLINE)],
)
def test_a_broken_environment_keeps_its_reason(play_task, tiny, tokenizer, env, reason):
    recipe = tiny(f"env=[{{id='{env}'}}]", "limits.turn_deadline_s=0.2")
    samples, _ = play_task(recipe, stopping(tokenizer))
    episode = episode_of(samples)
    assert episode.stop_reason is reason and len(episode.turns) == 2
    assert not any(samples[0].response_mask) and not any(samples[0].rm_scores)
    assert samples[0].extra_fields["fault"] is None


def test_a_hanging_environment_does_not_hold_the_event_loop(make_loop, tiny, tokenizer):
    recipe = tiny("env=[{id='verltest:Hangs'}]", "limits.turn_deadline_s=1.0")
    answer = stopping(tokenizer)

    class Client:
        async def generate(self, *_, prompt_ids, sampling_params):
            return answer(prompt_ids, sampling_params)

    async def both():
        ticks = 0
        fields = {"data_source": "gem:train", "global_steps": 1}
        loop = make_loop(recipe, Client())
        task = asyncio.ensure_future(loop.run({}, index=0, **fields))
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return ticks, task.result()

    ticks, samples = asyncio.run(both())
    assert ticks > 20
    assert episode_of(samples).stop_reason is StopReason.DEADLINE


def test_an_episode_without_an_action_keeps_a_row(play_task, tiny, tokenizer):
    recipe = tiny("limits.max_context_tokens=5")
    samples, client = play_task(recipe, stopping(tokenizer))
    assert client.requests == []
    fields = samples[0].as_dict()
    assert len(fields["prompts"]) > 5 and fields["response_mask"].tolist() == [0]
    assert fields["rm_scores"].tolist() == [0.0]
    assert episode_of(samples).stop_reason is StopReason.CONTEXT_OVERFLOW


def test_turns_without_a_token_between_are_refused():
    from gem_core.episodes.context import Context, Template
    from gem_core.episodes.data import Completion

    class Letters:
        stop_ids = frozenset({1})

        def encode(self, text):
            return [7] * len(text)

        def decode(self, token_ids):
            return "x" * len(token_ids)

    class Silent(Env):
        def _reset(self, options):
            return "go", {}

        def _step(self, action):
            return "", 1.0, False, False, {}

    silent = Template("silent", "{observation}", "{observation}")
    machine = EpisodeMachine(Silent(), Context(silent, Letters()), seed=0)
    machine.start()
    machine.feed(Completion([5, 1], [-1.0, -1.0]))
    machine.feed(Completion([6, 1], [-1.0, -1.0]))
    machine.abort(StopReason.TRUNCATED_TURNS)
    with pytest.raises(GemError, match="without a token between"):
        to_native(machine.episode, Task(0, 0, 0, 0), [1], [])


def test_the_state_in_which_a_limit_cut_an_episode_ends_its_row():
    (sample,) = cut([3, 4, 1, 6, 1], mask=[0, 0, 1, 0, 1], final=[3, 4, 1, 6, 1, 8, 9])
    (label,) = read_labels([sample.extra_fields["label"]])
    assert sample.prompt_ids == [3, 4] and sample.response_ids == [1, 6, 1, 8, 9, 1]
    assert sample.response_mask == [1, 0, 1, 0, 0, 0] and len(sample.rm_scores) == 6
    assert sample.response_logprobs == [-1.0, 0.0, -1.0, 0.0, 0.0, 0.0]
    values = np.array([[0.0, 0.1, 0.2, 0.3, 0.4, 0.5]])  # V before each token of the response
    assert final_values([label], [sample.response_mask], values) == {0: 0.5}


@pytest.mark.parametrize("final", [[], [3, 4, 1, 7, 1, 8]])
def test_a_state_that_does_not_continue_the_row_is_left_out(final):
    (sample,) = cut([3, 4, 1, 6, 1], mask=[0, 0, 1, 0, 1], final=final)
    assert sample.response_ids == [1, 6, 1]
    assert read_labels([sample.extra_fields["label"]])[0].final == 0


def cut(token_ids, mask, final):
    """The samples of an episode of two turns that a limit cut off."""
    logprobs = [-1.0 * masked for masked in mask]
    spans = [(0, 2, 3), (1, 4, 5)]
    segment = Segment(token_ids, loss_mask=mask, logprobs=logprobs, spans=spans)
    turns = [Turn(0, "go", "a", reward=0.5), Turn(1, "more", "b", reward=0.25)]
    episode = Episode("x", 0, turns=turns, segments=[segment])
    return to_native(episode, Task(0, 0, 0, 0), [1], [], final=final)
