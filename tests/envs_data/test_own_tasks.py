"""The data sets of this project: what they ask, and that only the asked program or tool answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

import gem_core
from gem_core.envs._data_source import SAMPLES
from gem_core.envs.players import get_player, play_episode
from gem_core.tools import ToolEnv, make_tool

HELD_OUT = {
    "math:Remainders": 0.1,
    "math:DigitSums": 0.1,
    "code:Formulas": 0.3,
    "code:Lists": 0.4,
    "qa:Auction": 0.3,
    "qa:Ledger": 0.3,
}
"""Data set -> a share that leaves 100 tasks or more for evaluation."""
TOOLS: dict[str, dict[str, Any]] = {
    "math:Remainders": {"name": "python"},
    "math:DigitSums": {"name": "python"},
    "qa:Auction": {"name": "search", "topk": 1},
    "qa:Ledger": {"name": "search", "topk": 1, "corpus": "ledger"},
}


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SAMPLES / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("env_id", "share"), HELD_OUT.items())
def test_no_question_of_the_evaluation_is_trained_on(env_id: str, share: float) -> None:
    asked = {}
    for part in ("train", "eval"):
        env: Any = gem_core.make(env_id, part=part, held_out=share)
        asked[part] = [env.reset(options={"index": i})[0] for i in env.item_indices()]
    assert len(asked["eval"]) >= 100
    assert not set(asked["train"]) & set(asked["eval"])
    assert len(set(asked["train"] + asked["eval"])) == len(asked["train"] + asked["eval"])


def printed(program: Any, text: str) -> str:
    """Return what a program of the sample prints for an input."""
    lines: list[str] = []
    exec(program, {"input": lambda: text, "print": lambda value: lines.append(f"{value}\n")})
    return "".join(lines)


@pytest.mark.parametrize("name", ["formulas", "lists"])
def test_the_tests_of_a_program_pass_no_other_program(name: str) -> None:
    tasks = rows(name)
    programs = [compile(task["solution"], task["question"], "exec") for task in tasks]
    for number in range(0, len(tasks), 12):
        tests = tasks[number]["tests"]
        passed = [
            index
            for index, program in enumerate(programs)
            if all(printed(program, test["input"]) == test["output"] for test in tests)
        ]
        assert passed == [number], tasks[number]["question"]


@pytest.mark.parametrize("name", ["remainders", "digit_sums"])
def test_no_answer_is_common(name: str) -> None:
    answers = [row["answer"] for row in rows(name)]
    assert max(answers.count(answer) for answer in set(answers)) <= 0.02 * len(answers)


@pytest.mark.parametrize("env_id", TOOLS)
def test_the_expert_needs_its_tool(env_id: str) -> None:
    options = dict(TOOLS[env_id])
    env = ToolEnv(gem_core.make(env_id), [make_tool(options.pop("name"), **options)])
    for seed in range(20):
        player = get_player("expert", env_id, seed, env=env)
        result = play_episode(env, player, seed=seed)
        assert result.success and result.turns == (3 if env_id == "qa:Ledger" else 2)
    env.close()
