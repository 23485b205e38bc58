"""Experts win, random players do not, and both are reproducible."""

from __future__ import annotations

import re
from statistics import mean
from typing import Any

import pytest

import gem_core
from gem_core.envs import specs
from gem_core.envs.players import EXPERTS, family, get_player, play_episode
from gem_core.errors import GemError, UnknownNameError

WITH_EXPERT = [spec.id for spec in specs() if family(spec.id) in EXPERTS]
EPISODES = range(60)
WINS = {
    "game:Minesweeper-v0-easy": 0.6,
    "game:Minesweeper-v0-hard": 0.6,
    "game:Minesweeper-v0-random": 0.6,
    "game:Game2048-v0-easy": 0.9,
    "game:Game2048-v0-hard": 0.0,
    "game:Game2048-v0-extreme-hard": 0.0,
    # Some starts are farther from the goal than the turns reach.
    "game:FifteenPuzzle-v0-random": 0.8,
    "game:Sokoban-v0-hard": 0.9,
}
"""Share of episodes that the expert wins at least, where it is not 0.95: luck decides in
Minesweeper, and the tiles of a won 2048-hard would need more turns than there are."""
SLOW = ("Game2048", "Sokoban-v0-hard", "Sokoban-v0-random", "FifteenPuzzle-v0-hard")
"""Experts that think long play fewer episodes."""


def results(env_id: str, kind: str, **options: object) -> list[tuple[float, int, bool]]:
    env = gem_core.make(env_id)
    extra = {"env": env} if kind == "random" else options
    player = get_player(kind, env_id, seed=1, **extra)
    episodes = EPISODES[:20] if any(name in env_id for name in SLOW) else EPISODES
    return [play_episode(env, player, seed=seed) for seed in episodes]


@pytest.mark.parametrize("env_id", WITH_EXPERT)
def test_the_expert_wins_and_beats_the_random_player(env_id: str) -> None:
    expert = results(env_id, "expert")
    rand = results(env_id, "random")
    assert mean(success for _, _, success in expert) >= WINS.get(env_id, 0.95)
    assert mean(reward for reward, _, _ in expert) > mean(reward for reward, _, _ in rand)


@pytest.mark.parametrize("env_id", WITH_EXPERT)
@pytest.mark.parametrize("kind", ["random", "expert"])
def test_players_are_reproducible(env_id: str, kind: str) -> None:
    def some() -> list[tuple[float, int, bool]]:
        env = gem_core.make(env_id)
        player = get_player(kind, env_id, seed=1, **({"env": env} if kind == "random" else {}))
        return [play_episode(env, player, seed=seed) for seed in range(3)]

    assert some() == some()


def test_binary_search_wins_the_easy_game_for_every_number() -> None:
    env = gem_core.make("game:GuessTheNumber-v0-easy")
    player = get_player("expert", "game:GuessTheNumber-v0-easy", seed=0)
    targets = set()
    for seed in range(200):
        assert play_episode(env, player, seed=seed).success
        targets.add(env._target)
    assert targets == set(range(1, 11))


def test_expert_actions_are_the_bare_answer() -> None:
    for answer_format, pattern in (("boxed", r"\\boxed\{\d+\}"), ("plain", r"\d+")):
        env_id = "game:GuessTheNumber-v0-easy"
        env = gem_core.make(env_id, answer_format=answer_format)
        player = get_player("expert", env_id, 0, answer_format=answer_format)
        obs, info = env.reset(seed=0)
        player.reset(obs, info)
        assert re.fullmatch(pattern, player.act(obs, info))


def test_noise_makes_the_expert_worse_but_never_malformed() -> None:
    env_id = "game:GuessTheNumber-v0-easy"
    clean = results(env_id, "expert")
    noisy = results(env_id, "expert", noise=0.7)
    assert mean(s for *_, s in noisy) < mean(s for *_, s in clean) == 1.0
    assert min(reward for reward, _, _ in noisy) >= 0
    with pytest.raises(ValueError, match="probability"):
        get_player("expert", env_id, 0, noise=2)


def test_hanoi_is_solved_from_any_start_in_the_fewest_moves() -> None:
    env_id = "game:TowerofHanoi-v0-easy"
    env = gem_core.make(env_id, start="random", max_turns=7)
    player = get_player("expert", env_id, 0)
    assert all(play_episode(env, player, seed=s).success for s in range(100))


def test_mastermind_with_repeated_numbers() -> None:
    env = gem_core.make("game:Mastermind-v0-hard", duplicate_numbers=True)
    player = get_player("expert", "game:Mastermind-v0-hard", 0)
    assert all(play_episode(env, player, seed=s).success for s in range(10))


@pytest.mark.parametrize(
    ("kind", "env_id"), [("random", "game:Minesweeper-v0-random"), ("expert", "math:GSM8K")]
)
def test_players_that_use_the_environment_need_the_one_that_is_played(
    kind: str, env_id: str
) -> None:
    with pytest.raises(GemError, match=r"env=env"):
        get_player(kind, env_id, 0)


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("game:Sudoku-v0-easy", {"answer_format": "tag"}),
        ("game:Wordle-v0-easy", {"words": "english"}),
        ("game:Hangman-v0-easy", {"words": "english"}),
    ],
)
def test_an_expert_reads_the_options_of_the_environment(env_id: str, options: Any) -> None:
    env = gem_core.make(env_id, **options)
    player = get_player("expert", env_id, 0, env=env)
    assert sum(play_episode(env, player, seed=seed).success for seed in range(20)) >= 10


def test_a_word_of_another_list_is_an_error_that_says_so() -> None:
    env = gem_core.make("game:Wordle-v0-easy", words="english")
    player = get_player("expert", "game:Wordle-v0-easy", 0)
    with pytest.raises(GemError, match="cannot read this observation"):
        for seed in range(20):
            play_episode(env, player, seed=seed)


@pytest.mark.parametrize("pattern", [r"door (\d)", re.compile(r"door (\d)")])
def test_a_pattern_is_a_text_or_compiled(pattern: str | re.Pattern[str]) -> None:
    player = get_player("expert", "game:Sudoku-v0-easy", 0)
    assert player.find(pattern, "Open door 7.")[1] == "7"
    with pytest.raises(GemError, match=r"cannot read this observation: 'Open it\.'"):
        player.find(pattern, "Open it.")


def test_unknown_players_are_named() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'expert'"):
        get_player("exprt", "game:Sudoku-v0-easy", 0)
    with pytest.raises(UnknownNameError, match="expert for"):
        get_player("expert", "my:Task-v0", 0)


def test_every_game_has_an_expert() -> None:
    games = {s.id for s in specs() if s.id.startswith("game:")}
    assert {i for i in WITH_EXPERT if i.startswith("game:")} == games
