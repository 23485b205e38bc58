"""The fixed text the tiny tokenizer is trained on: games as the recipes show them.

It does not depend on a recipe, so all recipes share one tokenizer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from gem_core.episodes.context import Context, get_template
from gem_core.registration import make

GAMES = (
    "game:GuessTheNumber-v0-easy",
    "game:GuessTheNumber-v0-hard",
    "game:Mastermind-v0-easy",
    "game:TowerofHanoi-v0-easy",
    "game:Sudoku-v0-easy",
)
"""What the tiny profile is meant for."""
EPISODES = 200
"""Random episodes per game."""


def corpus() -> list[str]:
    """Whole episodes as text, the same on every call and every machine."""
    return [text for game in GAMES for text in _episodes(game)]


def _episodes(game: str) -> Iterator[str]:
    rng = random.Random(game)
    for number in range(EPISODES):
        yield _transcript(game, number, rng)


def _transcript(game: str, seed: int, rng: random.Random) -> str:
    """One random episode: every prompt and every action, in order."""
    env, context = make(game), Context(get_template("qwen3_game"))
    observation, info = env.reset(seed=seed)
    parts = [context.start(observation, info)]
    over = False
    while not over:
        action = env.random_action(rng)
        observation, _, terminated, truncated, info = env.step(action)
        over = terminated or truncated
        parts += [action, context.template.close]
        parts.append(context.extend(action, True, observation, info).text)
    return "".join(parts)
