"""The fixed text on which the tiny tokenizer is trained: games as recipes render them.

It does not depend on a recipe, so that all recipes have the same tokenizer.
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
"""The games for which the tiny profile is intended."""
EPISODES = 200
"""Number of random episodes per game."""


def corpus() -> list[str]:
    """Return whole episodes as text, the same at every call and on every machine."""
    return [text for game in GAMES for text in _episodes(game)]


def _episodes(game: str) -> Iterator[str]:
    rng = random.Random(game)
    for number in range(EPISODES):
        yield _transcript(game, number, rng)


def _transcript(game: str, seed: int, rng: random.Random) -> str:
    """Return one random episode: every prompt and every action, in order."""
    env = make(game)
    context = Context(get_template("qwen3_game"))
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
