"""Limits, errors and wrong arguments: what is scored, and what is named."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import anyio
import own_tasks
import pytest
from inspect_ai.model import ModelName, ModelOutput
from inspect_ai.solver import TaskState, generate
from played import WATCHED, Evaluate, count_up, metric, scores

from gem_bridges.as_inspect import GemEpisode, episode_return, gem_task, play_gem, success
from gem_core.errors import KindError, UnknownNameError


@pytest.mark.parametrize(
    ("limit", "kind"), [({"message_limit": 4}, "message"), ({"turn_limit": 2}, "turn")]
)
def test_a_limit_scores_what_was_played(
    limit: dict[str, int], kind: str, evaluate: Evaluate
) -> None:
    log = evaluate(gem_task(WATCHED, seeds=2, **limit), count_up)
    assert log.status == "success"
    for sample in log.samples:
        assert sample.limit.type == kind and sample.error is None
        episode = sample.store_as(GemEpisode)
        assert (episode.rewards, episode.end) == ([0.5, 1.0], None)
        assert scores(sample) == {"episode_return": 1.5, "success": 0.0}
        assert sample.scores["success"].explanation == "not ended after 2 turns"


def test_an_episode_as_long_as_the_limit_is_complete(evaluate: Evaluate) -> None:
    (sample,) = evaluate(gem_task(WATCHED, seeds=1, message_limit=6), count_up).samples
    assert sample.limit is None and scores(sample) == {"episode_return": 3.0, "success": 1.0}


def test_an_answer_without_room_in_the_context_is_not_played(evaluate: Evaluate) -> None:
    def answer(texts: list[str]) -> Any:
        if len(texts) < 3:
            return count_up(texts)
        text = "maximum context length exceeded"
        return ModelOutput.from_content("mockllm/model", text, stop_reason="model_length")

    (sample,) = evaluate(gem_task(WATCHED, seeds=1), answer).samples
    episode = sample.store_as(GemEpisode)
    assert (episode.rewards, episode.end) == ([0.5], "model_length")
    assert scores(sample) == {"episode_return": 0.5, "success": 0.0}


def test_a_cut_from_outside_is_no_success(evaluate: Evaluate) -> None:
    (sample,) = evaluate(gem_task("own_tasks:CutOff", seeds=1), count_up).samples
    episode = sample.store_as(GemEpisode)
    assert (episode.end, episode.last_observation) == ("truncated", "No time is left.")
    assert scores(sample) == {"episode_return": 0.5, "success": 0.0}


def test_an_exception_of_the_environment_is_an_error_of_the_sample(evaluate: Evaluate) -> None:
    task = gem_task(WATCHED, {"faulty_turn": 2}, seeds=2)
    log = evaluate(task, count_up)
    assert log.status == "error" and "the disk is full" in log.error.message
    log = evaluate(task, count_up, fail_on_error=False)
    assert log.status == "success" and len(log.samples) == 2
    for sample in log.samples:
        assert "the disk is full" in sample.error.message and not sample.scores
        assert sample.store_as(GemEpisode).rewards == [0.5]
    log = evaluate(task, count_up, fail_on_error=False, score_on_error=True)
    for sample in log.samples:
        assert "the disk is full" in sample.error.message
        assert scores(sample) == {"episode_return": 0.5, "success": 0.0}


def test_the_other_samples_are_scored(evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_tasks.OnceFaulty, "failures", count())
    task = gem_task("own_tasks:OnceFaulty", {"faulty_turn": 2}, seeds=3)
    log = evaluate(task, count_up, fail_on_error=False)
    assert log.status == "success" and log.results.completed_samples == 2
    assert [sample.error is None for sample in log.samples].count(False) == 1
    assert metric(log, "success") == 1.0


def test_a_sample_that_is_retried_begins_again(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_tasks.OnceFaulty, "failures", count())
    task = gem_task("own_tasks:OnceFaulty", {"faulty_turn": 2}, seeds=1)
    (sample,) = evaluate(task, count_up, retry_on_error=1).samples
    assert len(sample.error_retries) == 1 and sample.error is None
    assert sample.store_as(GemEpisode).rewards == [0.5, 1.0, 1.5]
    assert scores(sample) == {"episode_return": 3.0, "success": 1.0}


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ("own_tasks:NoNumber", "the reward must be finite"),
        ("own_tasks:Unseeded", "seed 0 does not decide the episode"),
    ],
)
def test_what_an_environment_does_wrong_is_named(
    environment: str, message: str, evaluate: Evaluate
) -> None:
    log = evaluate(gem_task(environment, seeds=1), count_up)
    assert log.status == "error" and message in log.error.message
    assert "\n" not in log.error.message


def test_a_running_step_ends_before_the_environment_is_closed(
    monkeypatch: pytest.MonkeyPatch, watched: list[own_tasks.Watched]
) -> None:
    """A time limit cancels the solver, and cannot stop a thread."""
    entered, released = threading.Event(), threading.Event()
    closed_before_the_end = []

    def step(env: own_tasks.Watched, _: str) -> Any:
        entered.set()
        assert released.wait(timeout=60)
        closed_before_the_end.append(env.closed)
        return "And?", 0.0, False, False, {}

    async def answer(state: TaskState, **_: Any) -> TaskState:
        state.output = ModelOutput.from_content("mockllm/model", "5")
        return state

    async def cancel(scope: anyio.CancelScope) -> None:
        assert await anyio.to_thread.run_sync(entered.wait, 60)
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        released.set()

    async def run() -> None:
        (sample,) = gem_task(WATCHED, seeds=1).dataset
        about = {"sample_id": sample.id, "epoch": 1, "metadata": sample.metadata}
        state = TaskState(ModelName("mockllm/model"), input=sample.input, messages=[], **about)
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                tasks.start_soon(cancel, scope)
                await play_gem(WATCHED, {})(state, answer)
        assert scope.cancelled_caught

    monkeypatch.setattr(own_tasks.Watched, "_step", step)
    anyio.run(run)
    assert closed_before_the_end == [0] and watched[-1].closed == 1


@pytest.mark.parametrize("scorer", [episode_return(), success()])
def test_a_sample_that_another_solver_played_has_no_score(scorer: Any, evaluate: Evaluate) -> None:
    task = gem_task(WATCHED, seeds=1, solver=generate(), scorer=scorer)
    log = evaluate(task, lambda _: "5")
    assert log.status == "error" and "play the sample with" in log.error.message


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"seeds": 0}, KindError, "at least 1"),
        ({"seeds": "3"}, KindError, "seeds"),
        ({"first_seed": 0.5}, KindError, "first_seed"),
        ({"kwargs": {"max_turns": object()}}, KindError, "JSON data"),
        ({"kwargs": {"max_turn": 3}}, UnknownNameError, "max_turns"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        gem_task("game:Sudoku-v0-easy", **arguments)
