"""Scripted players: a random one for every environment, experts and weak players for the games.

Experts read only the observations, as an agent does (`Peek` is the exception), so that they play on
if another action than theirs was played. They are baselines, tests of the environments, and the
source of actions for behaviour cloning.

>>> import gem_core
>>> env = gem_core.make("game:GuessTheNumber-v0-easy")
>>> player = get_player("expert", "game:GuessTheNumber-v0-easy", seed=0)
>>> play_episode(env, player, seed=3).success
True
"""

from __future__ import annotations

from gem_core.envs.players.player import (
    Peek,
    Player,
    RandomPlayer,
    Result,
    play_episode,
)
from gem_core.envs.players.registry import (
    EXPERTS,
    WEAK,
    family,
    get_player,
    player_names,
    register_player,
    require_player,
)

__all__ = [
    "EXPERTS",
    "WEAK",
    "Peek",
    "Player",
    "RandomPlayer",
    "Result",
    "family",
    "get_player",
    "play_episode",
    "player_names",
    "register_player",
    "require_player",
]
