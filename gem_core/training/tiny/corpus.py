"""The text on which the tiny tokenizer is trained: environments as recipes render them.

`corpus` does not depend on a recipe, so that all recipes that use it have the same tokenizer.
`own_corpus` is made of a recipe's environments.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gem_core.env.registration import make
from gem_core.episodes.context import Context, Template, get_template

if TYPE_CHECKING:
    from gem_core.env.interface import Env
    from gem_core.envs.players import Player
    from gem_core.runs.recipe.recipe import Recipe

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
OWN_EPISODES = 100
"""Number of episodes per environment of a recipe; half of their actions are the expert's."""
_OWN_SEED = -2 * 10**12
"""The first seed of `own_corpus`; the others are below it, apart from all other seeds."""


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
    return _played(env, get_template("qwen3_game"), seed, lambda shown: env.random_action(rng))


def own_corpus(recipe: Recipe) -> list[str]:
    """Return whole episodes of the recipe's training environments as text.

    They depend only on the environments and the template; ``chat`` is rendered as
    ``qwen3_general``, of which the tiny tokenizer's chat template has the same marks.
    """
    from gem_core.runs.environments.data import make_for_run
    from gem_core.runs.recipe.templates import recipe_template
    from gem_core.runs.splits import run_envs

    of_chat = recipe.context.template == "chat"
    template = get_template("qwen3_general") if of_chat else recipe_template(recipe.context)
    texts = []
    for config, key in run_envs(recipe)["train"]:
        for episode in range(OWN_EPISODES):
            env = make_for_run(config, key)
            texts.append(_half_expert(env, config.id, template, _OWN_SEED - episode))
            env.close()
    return texts


def _half_expert(env: Env, env_id: str, template: Template, seed: int) -> str:
    from gem_core.training.warm_start.episodes import expert_action, expert_player

    rng = random.Random(f"corpus {seed}")
    player: Player | None = None

    def act(shown: tuple[str, dict[str, Any]]) -> str:
        nonlocal player
        if player is None:
            player = expert_player(env, env_id, seed)
            player.reset(*shown)
        action = expert_action(player, env, shown, rng)[0]
        return env.random_action(rng) if rng.random() < 0.5 else action

    return _played(env, template, seed, act)


def _played(
    env: Env, template: Template, seed: int, act: Callable[[tuple[str, dict[str, Any]]], str]
) -> str:
    """Play one episode; return every prompt and every action, in order."""
    context = Context(template)
    observation, info = env.reset(seed=seed)
    parts = [context.start(observation, info)]
    over = False
    while not over:
        action = act((observation, info))
        observation, _, terminated, truncated, info = env.step(action)
        over = terminated or truncated
        parts += [action, context.template.close]
        parts.append(context.extend(action, True, observation, info).text)
    return "".join(parts)
