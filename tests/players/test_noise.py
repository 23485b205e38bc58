"""Every expert plays on when random actions are played instead of half of its own."""

from __future__ import annotations

from random import Random
from statistics import mean
from typing import Any

import pytest

import gem_core
from gem_core.env.interface import Env
from gem_core.envs import specs
from gem_core.envs.players import EXPERTS, Player, family, get_player

GAMES = [s.id for s in specs() if family(s.id) in EXPERTS or s.id.startswith("webshop:")]
SEEDS = 200
"""Episodes of the first variant of a family, in which every expert is tested; 60 without --slow."""
OTHERS = 20
"""Episodes of the other variants; 6 without --slow."""


def episodes(env_id: str, slow: bool) -> range:
    """Return the seeds of an environment."""
    first = next(other for other in GAMES if family(other) == family(env_id))
    number = SEEDS if env_id == first else OTHERS
    return range(number if slow else 3 * number // 10)


def play(env: Env, player: Player, seed: int, garbage: tuple[str, ...] = ()) -> tuple[bool, bool]:
    """Play one episode; return its success and whether each action of the player was well-formed.

    Each action is with probability 0.5 the player's, else random or one of ``garbage``.
    """
    rng = Random(f"noise {seed}")
    observation, info = env.reset(seed=seed)
    player.reset(observation, info)
    well_formed = True
    over = False
    while not over:
        action = player.act(observation, info)
        own = rng.random() < 0.5
        if not own:
            action = rng.choice((env.random_action(rng), *garbage))
        observation, _, terminated, truncated, info = env.step(action)
        well_formed = well_formed and not (own and info.get("error") == "invalid_format")
        over = terminated or truncated
    return info["success"], well_formed


@pytest.mark.parametrize("env_id", GAMES)
def test_an_expert_never_fails_under_noise_and_its_actions_are_well_formed(
    env_id: str, pytestconfig: pytest.Config
) -> None:
    env = gem_core.make(env_id)
    results = []
    for seed in episodes(env_id, pytestconfig.getoption("--slow")):
        player = get_player("expert", env_id, seed, env=env)
        results.append(play(env, player, seed))
    assert all(well_formed for _, well_formed in results)


@pytest.mark.parametrize("env_id", [i for i in GAMES if i.startswith("game:")])
def test_an_expert_survives_actions_without_an_answer(env_id: str) -> None:
    env = gem_core.make(env_id, format_error_ends=False)
    for seed in range(5):
        player = get_player("expert", env_id, seed, env=env)
        assert play(env, player, seed, garbage=("", "I pass."))[1]


ENOUGH_TURNS: dict[str, dict[str, Any]] = {
    "game:Crosswords-v0-easy": {"max_turns": 60},
    "game:FifteenPuzzle-v0-easy": {"max_turns": 60},
    "game:Hangman-v0-hard": {"max_turns": 40},
    "game:Sudoku-v0-easy": {"max_turns": 60},
    "game:TowerofHanoi-v0-easy": {"max_turns": 60},
    "game:WikiGame-v0-easy": {"max_turns": 100},
    "game:WordSearch-v0-easy": {"max_turns": 200},
}
"""Games in which a random action does no lasting harm, with turns enough for twice the moves."""


@pytest.mark.parametrize("env_id", ENOUGH_TURNS)
def test_an_expert_still_wins_where_noise_only_costs_turns(env_id: str) -> None:
    env = gem_core.make(env_id, **ENOUGH_TURNS[env_id])
    wins = []
    for seed in range(60):
        player = get_player("expert", env_id, seed, env=env)
        wins.append(play(env, player, seed)[0])
    assert mean(wins) >= 0.95
