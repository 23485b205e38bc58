"""Weak players of tools and programs: right forms, chance in what they do, no expert."""

from __future__ import annotations

from typing import Any

import pytest

import gem_core
from gem_core.env.interface import Env
from gem_core.envs.players import get_player, play_episode
from gem_core.errors import GemError
from gem_core.tools import Budget, ToolEnv, make_tool

PYTHON = {"name": "python"}
SEARCH = {"name": "search", "topk": 1}
TOOLS: dict[str, dict[str, Any]] = {
    "math:Remainders": PYTHON,
    "math:DigitSums": PYTHON,
    "qa:Auction": SEARCH,
    "qa:Ledger": {**SEARCH, "corpus": "ledger"},
}
PLAYED = [
    # (environment, player, episodes, least wins, most wins)
    ("math:Remainders", "any-formula", 40, 1, 16),  # 1 of 6
    ("math:DigitSums", "any-formula", 40, 1, 14),  # 1 of 6
    ("qa:Ledger", "any-step", 100, 15, 50),  # an entry is found by any word and its number
    ("math:Remainders", "number-shown", 30, 0, 0),
    ("math:DigitSums", "number-shown", 30, 0, 0),
    ("qa:Auction", "number-shown", 30, 0, 0),
    ("qa:Ledger", "number-shown", 30, 0, 0),
    ("code:Formulas", "any-operation", 30, 4, 18),  # 1 of 3
    ("code:Lists", "any-operation", 60, 1, 15),  # 1 of 10
    ("code:Formulas", "prints-input", 20, 0, 0),
    ("code:Lists", "prints-input", 20, 0, 3),
]


def environment(env_id: str) -> Env:
    env = gem_core.make(env_id, compat="gem-0.1.0")
    if env_id not in TOOLS:
        return env
    options = dict(TOOLS[env_id])
    tool = make_tool(options.pop("name"), **options)
    return ToolEnv(env, [tool], budget=Budget(calls=40), instructions=False)


@pytest.mark.parametrize(("env_id", "name", "episodes", "least", "most"), PLAYED)
def test_a_weak_player_wins_by_chance_alone(
    env_id: str, name: str, episodes: int, least: int, most: int
) -> None:
    env = environment(env_id)
    wins = 0
    for seed in range(episodes):
        player = get_player(name, env_id, seed, env=env)
        wins += play_episode(env, player, seed=seed).success
    assert least <= wins <= most
    env.close()


def actions(env_id: str, name: str, seed: int) -> list[str]:
    env = environment(env_id)
    player = get_player(name, env_id, seed, env=env)
    observation, info = env.reset(seed=seed)
    player.reset(observation, info)
    played = []
    over = False
    while not over:
        played.append(player.act(observation, info))
        observation, _, terminated, truncated, info = env.step(played[-1])
        over = terminated or truncated
        if not over:
            assert info["tool"]["error"] is None
    assert info.get("error") is None
    env.close()
    return played


@pytest.mark.parametrize(("env_id", "name"), [row[:2] for row in PLAYED])
def test_its_actions_are_well_formed_and_those_of_its_seed(env_id: str, name: str) -> None:
    one = [actions(env_id, name, seed) for seed in range(4)]
    assert one == [actions(env_id, name, seed) for seed in range(4)]


def test_the_last_number_after_a_search_is_the_answer() -> None:
    env = environment("qa:Auction")
    question, info = env.reset(seed=0)
    player = get_player("number-shown", "qa:Auction", 0, env=env)
    player.reset(question, info)
    lot = question.split()[3]
    assert player.act(question, info) == f"<answer>{lot}</answer>"
    result, _, _, _, info = env.step(f"<search>lot {lot}</search>")
    assert env.step(player.act(result, info))[4]["success"]
    assert player.act("no number", {}) == "<answer>0</answer>"


def test_a_player_without_its_tool_is_an_error_of_one_line() -> None:
    env = gem_core.make("math:Remainders")
    with pytest.raises(GemError, match=r"tool 'python', which the environment has not: give it"):
        get_player("any-formula", "math:Remainders", 0, env=env)
    with pytest.raises(GemError, match="cannot read this observation"):
        get_player("any-operation", "code:Lists", 0).act("Print nothing.", {})
