"""Weak players make legal moves without the expert's strategy; plugins register more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import gem_core
from gem_core.env.registration import spec
from gem_core.envs.players import (
    EXPERTS,
    WEAK,
    Player,
    get_player,
    play_episode,
    player_names,
    register_player,
    require_player,
)
from gem_core.errors import GemError, UnknownNameError

IDS = {
    "game:GuessTheNumber": "game:GuessTheNumber-v0-hard",
}
"""Family -> the environment that is played, where it is not the easy one."""
PLAYED = [
    (IDS.get(one, f"{one}-v0-easy"), name)
    for one, players in WEAK.items()
    if one.startswith("game:")
    for name in players
]
MAY_BE_INVALID = {"game:Sokoban-v0-easy", "game:Sudoku-v0-easy", "game:WordSearch-v0-easy"}
"""Where a move may be refused: a box may not move, a number may break another rule, a line that was
tried comes up again after all others."""


@pytest.fixture
def tables() -> Iterator[None]:
    """Put the tables of players back."""
    weak = {family: dict(players) for family, players in WEAK.items()}
    experts = dict(EXPERTS)
    yield
    WEAK.clear()
    WEAK.update(weak)
    EXPERTS.clear()
    EXPERTS.update(experts)


@pytest.mark.parametrize(("env_id", "name"), PLAYED)
def test_a_weak_player_makes_legal_moves_and_is_no_expert(env_id: str, name: str) -> None:
    env = gem_core.make(env_id)
    errors: list[Any] = []
    wins = {"expert": 0, name: 0}
    for seed in range(40):
        for kind in wins:
            wins[kind] += play_episode(env, get_player(kind, env_id, seed, env=env), seed=seed)[2]
        player = get_player(name, env_id, seed, env=env)
        observation, info = env.reset(seed=seed)
        player.reset(observation, info)
        over = False
        while not over:
            action = player.act(observation, info)
            observation, _, terminated, truncated, info = env.step(action)
            errors.append(info.get("error"))
            over = terminated or truncated
    assert "invalid_format" not in errors
    if env_id not in MAY_BE_INVALID:
        assert set(errors) == {None}
    assert wins[name] < wins["expert"]


def test_players_that_may_not_go_back_do_not() -> None:
    env = gem_core.make("game:TowerofHanoi-v0-easy", max_turns=60)
    player = get_player("no-way-back", "game:TowerofHanoi-v0-easy", 3)
    observation, info = env.reset(seed=0)
    player.reset(observation, info)
    boards = [info["suffix"]]
    over = False
    while not over:
        observation, _, terminated, truncated, info = env.step(player.act(observation, info))
        boards.append(info["suffix"])
        over = terminated or truncated
    assert len(boards) > 4
    assert all(a != b for a, b in zip(boards, boards[2:], strict=False))


def test_another_answer_is_an_answer_of_the_environment_and_leaves_it_as_it_was() -> None:
    env_id = "rg:chain_sum"
    pytest.importorskip("reasoning_gym")
    env = gem_core.make(env_id)
    right = 0
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        before = env.get_state()  # type: ignore[attr-defined]
        player = get_player("another-answer", env_id, seed, env=env)
        player.reset(observation, info)
        assert env.get_state() == before  # type: ignore[attr-defined]
        result = env.step(player.act(observation, info))
        assert result[4].get("error") is None
        right += result[4]["success"]
    assert right < 10


def test_an_unknown_player_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(UnknownNameError, match=r"Did you mean 'within-hints'\?.*random, expert"):
        require_player("within-hint", "game:GuessTheNumber-v0-easy")
    with pytest.raises(UnknownNameError, match=r"has: random, expert, alphabet-in-cell\."):
        get_player("within-hints", "game:Crosswords-v0-easy")


@pytest.mark.usefixtures("tables")
def test_a_plugin_adds_players_and_cannot_replace_them() -> None:
    register_player("cautious", "my:Game", "gem_core.envs.players.weak:WithinHints")
    register_player("expert", "my:Game", "gem_core.envs.players.guess_the_number:BinarySearch")
    assert player_names("my:Game-v0") == ("random", "expert", "cautious")
    player = get_player("cautious", "my:Game-v0-hard", 0)
    assert isinstance(player, Player) and type(player).__name__ == "WithinHints"
    assert type(get_player("expert", "my:Game-v0", 0)).__name__ == "BinarySearch"
    for name in ("cautious", "random"):
        with pytest.raises(GemError, match="choose another name"):
            register_player(name, "my:Game", "another:Class")
    with pytest.raises(GemError, match="choose another name"):
        register_player("expert", "game:Sudoku", "another:Class")


def test_the_families_exist() -> None:
    assert all(spec(env_id).id == env_id for env_id, _ in PLAYED)
