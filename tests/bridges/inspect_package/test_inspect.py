"""The released inspect_ai plays gem-core's environments: the episodes are gem-core's own."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import own_tasks
import pytest
from inspect_ai import Epochs, task_with
from inspect_ai.log import read_eval_log
from inspect_ai.solver import system_message
from played import WATCHED, Evaluate, count_up, metric, play, play_expert, repeat, scores

import gem_core
from gem_bridges.as_inspect import GemEpisode, gem_task

GAMES = ["game:Sudoku-v0-easy", "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"]


@pytest.mark.parametrize("game", GAMES)
def test_an_expert_plays_the_episodes_of_gem_core(game: str, evaluate: Evaluate) -> None:
    expected = [play_expert(game, seed) for seed in (5, 6, 7)]
    log = evaluate(gem_task(game, seeds=3, first_seed=5), repeat(expected))
    assert log.status == "success" and log.samples is not None
    for seed, played, sample in zip((5, 6, 7), expected, log.samples, strict=True):
        assert sample.id == f"{game}#{seed}" and sample.input == played.shown[0]
        assert sample.metadata == {"environment": game, "kwargs": {}, "seed": seed}
        texts = [message.text for message in sample.messages]
        assert texts[0::2] == played.shown[:-1] and texts[1::2] == played.actions
        episode = sample.store_as(GemEpisode)
        assert episode.rewards == played.rewards and episode.success is played.success
        assert (episode.end, episode.last_observation) == ("terminated", played.shown[-1])
        assert scores(sample) == {
            "episode_return": pytest.approx(sum(played.rewards)),
            "success": 1.0,
        }
        assert sample.scores["episode_return"].metadata["rewards"] == played.rewards
    assert metric(log, "success") == 1.0 and metric(log, "success", "stderr") == 0.0
    mean = sum(sum(played.rewards) for played in expected) / 3
    assert metric(log, "episode_return") == pytest.approx(mean)
    spec = gem_core.make(game).spec
    assert log.eval.metadata["fingerprint"] == spec.fingerprint()


@pytest.mark.parametrize("answer", ["", "I do not know.", "\\boxed{1 1 1}"])
def test_wrong_and_empty_answers_are_the_environments_to_judge(
    answer: str, evaluate: Evaluate
) -> None:
    game = "game:Sudoku-v0-easy"
    expected = play(game, 3, lambda *_: answer)
    log = evaluate(gem_task(game, seeds=1, first_seed=3), lambda _: answer)
    (sample,) = log.samples
    assert sample.store_as(GemEpisode).rewards == expected.rewards
    assert not expected.success and scores(sample)["success"] == 0.0
    assert scores(sample)["episode_return"] == pytest.approx(sum(expected.rewards))


def test_the_error_and_the_reward_of_each_turn_are_kept(evaluate: Evaluate) -> None:
    def answer(texts: list[str]) -> str:
        return ("", "-1", count_up(texts))[len(texts) // 2]

    (sample,) = evaluate(gem_task(WATCHED, seeds=1), answer).samples
    episode = sample.store_as(GemEpisode)
    assert episode.errors == ["invalid_format", "invalid_action", None]
    assert episode.rewards == [-0.25, -0.25, 1.5]
    assert scores(sample) == {"episode_return": 1.0, "success": 1.0}


def test_each_epoch_has_an_environment_of_its_own(
    evaluate: Evaluate, watched: list[own_tasks.Watched]
) -> None:
    task = gem_task(WATCHED, seeds=3, epochs=Epochs(4, "mean"))
    right = {f"{WATCHED}#0", f"{WATCHED}#2"}
    inputs = {sample.input for sample in task.dataset if sample.id in right}
    log = evaluate(task, lambda texts: count_up(texts) if texts[0] in inputs else "no")
    assert len(watched) == 1 + 12 and len(log.samples) == 12
    for sample in log.samples:
        known = sample.id in right
        assert sample.store_as(GemEpisode).rewards == ([0.5, 1.0, 1.5] if known else [-0.25] * 3)
    assert metric(log, "success") == pytest.approx(2 / 3)
    assert metric(log, "episode_return") == pytest.approx((3.0 + 3.0 - 0.75) / 3)


def test_slow_environments_step_at_the_same_time(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch, watched: list[own_tasks.Watched]
) -> None:
    """More than the 40 threads that anyio lends to a whole program."""
    monkeypatch.setattr(own_tasks.Watched, "meeting", threading.Barrier(48))
    task = gem_task(WATCHED, seeds=48)
    log = evaluate(task, count_up, max_samples=48, max_connections=48)
    assert log.status == "success" and metric(log, "success") == 1.0
    threads = set().union(*(env.threads for env in watched))
    assert len(threads) >= 48 and threading.get_ident() not in threads


def test_the_info_of_the_environment_is_not_in_the_log(evaluate: Evaluate) -> None:
    log = evaluate(gem_task(WATCHED, seeds=1), count_up)
    with own_tasks.Watched() as env:
        assert env.reset(seed=0)[1]["secret"] == "hidden-in-the-info"
    text = log.model_dump_json()
    assert "What follows" in text and "hidden-in-the-info" not in text


def test_instructions_of_ones_own_go_before_the_episode(evaluate: Evaluate) -> None:
    task = task_with(gem_task(WATCHED, seeds=1), setup=system_message("Answer with a number."))
    log = evaluate(task, lambda texts: count_up(texts[1:]))
    assert log.samples[0].messages[0].text == "Answer with a number."
    assert metric(log, "success") == 1.0


def test_the_command_plays_a_file_of_tasks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "inspect_ai", "eval", "my_tasks.py", "-T", "seeds=2"]
    command += ["--log-dir", str(tmp_path), "--display", "plain"]
    here = Path(__file__).parent
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=here)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*.eval")
    log = read_eval_log(str(path))
    assert log.eval.task == "guess" and log.eval.metadata["kwargs"] == {"max_turns": 3}
    game = "game:GuessTheNumber-v0-easy"
    assert [sample.id for sample in log.samples] == [f"{game}#7", f"{game}#8"]
    played = [play(game, seed, lambda *_: "\\boxed{5}", max_turns=3) for seed in (7, 8)]
    rewards = [sample.store_as(GemEpisode).rewards for sample in log.samples]
    assert rewards == [one.rewards for one in played] and [len(one) for one in rewards] != [0, 0]
    assert metric(log, "success") == sum(one.success for one in played) / 2
