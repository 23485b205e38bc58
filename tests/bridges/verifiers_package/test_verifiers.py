"""The released verifiers: its tasks are ours, ours are its, and TRL trains on them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import gem_core
from gem_core.env.checker import check_env
from gem_core.errors import RecipeError

GUESS = "game:GuessTheNumber-v0-easy"
OURS = "verifiers:gem_tasks"


def test_a_question_is_scored_by_its_own_reward_functions() -> None:
    env = gem_core.make("verifiers:add_numbers")
    questions = set()
    for seed in range(20):
        question, info = env.reset(seed=seed)
        assert info["bridge"]["seeds"] == "decide"
        questions.add(question)
        first, second = (int(part) for part in question.removesuffix("= ?").split("+"))
        right = env.step(str(first + second))
        assert right[1:3] == (1.5, True)
        assert right[4]["rewards"] == {"right": 1.0, "short": 0.5}
        assert right[4]["success"] is True
        env.reset(seed=seed)
        wrong = env.step("I do not know that")
        assert (wrong[1], wrong[4]["success"]) == (0.0, False)
    assert len(questions) > 10


@pytest.mark.parametrize("name", ["verifiers:add_numbers", OURS])
def test_the_checker_passes(name: str) -> None:
    kwargs = {"taskset": {"environment": GUESS, "seeds": 20}} if name == OURS else {}
    check_env(name, seeds=(0, 1), steps=8, skip=("process",), **kwargs)


def test_there_and_back_is_the_same_episode() -> None:
    """Our taskset and `Env` of verifiers, played as one of verifiers' environments."""
    taskset = {"environment": GUESS, "seeds": 1, "first_seed": 7}
    there = gem_core.make(OURS, taskset=taskset)
    here = gem_core.make(GUESS)
    observation, info = here.reset(seed=7)
    assert there.reset(seed=0)[0] == f"{observation}\n{info['suffix']}"
    total = 0.0
    for guess in (5, 2, 8, 9):
        expected = here.step(f"\\boxed{{{guess}}}")
        got = there.step(f"\\boxed{{{guess}}}")
        total += expected[1]
        assert got[2] == expected[2]
        if expected[2]:
            assert got[1] == pytest.approx(total)
            break
        assert got[0] == f"{expected[0]}\n{expected[4]['suffix']}"
    assert expected[2]


def test_tasks_that_need_a_container_are_refused() -> None:
    with pytest.raises(RecipeError, match="container"):
        gem_core.make("verifiers:in_a_container")


def test_an_episode_that_is_left_leaves_no_task_behind() -> None:
    env = gem_core.make(OURS, taskset={"environment": GUESS, "seeds": 3})
    for seed in range(5):
        env.reset(seed=seed)
        env.step("\\boxed{5}")
    env.close()
    assert env._exchange is None


def test_two_steps_in_trl(tmp_path: Path) -> None:
    """Real optimizer steps of the released TRL."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'base = "games"\nname = "verifiers"\n[[env]]\nid = "verifiers:add_numbers"\n'
        f'[[env]]\nid = "{OURS}"\n'
        f'kwargs = {{ taskset = {{ environment = "{GUESS}", seeds = 50 }} }}\n'
    )
    settings = ["train.steps=2", "train.save_every=0", "batch.episodes=6", "eval.episodes=4"]
    settings += ["model.tiny.warm_start_steps=2"]
    run = tmp_path / "run"
    command = [sys.executable, "-m", "gem_core.cli", "train", str(recipe), "--trainer", "trl"]
    command += ["--profile", "tiny", "--run", str(run)]
    for setting in settings:
        command += ["--set", setting]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert refused.returncode == 2 and "give --trust" in refused.stderr and not run.exists()
    command.append("--trust")
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert max(line.get("step", 0) for line in lines) == 2
    rows = json.loads((run / "run.json").read_text())["environments"]
    assert {row["data_revision"] for row in rows} == {"verifiers==0.4.0"}
