"""Expert episodes for the warm start, played through the real episode machine."""

from __future__ import annotations

import random
from typing import Any

from gem_core.core import Wrapper
from gem_core.episodes.data import Completion, Episode
from gem_core.episodes.machine import Limits
from gem_core.players import Player, get_player
from gem_core.registration import make
from gem_core.training.recipe import EnvConfig, Recipe
from gem_core.training.tasks import MachineFactory, Task

_FIRST_SEED = -(10**12)
"""The first seed of the warm start; the others are below it, apart from all other seeds."""


class _Shown(Wrapper):
    """Keeps the last observation and info, for a player."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.shown = super().reset(seed=seed, options=options)
        return self.shown

    def step(self, action: str) -> Any:
        result = super().step(action)
        self.shown = result[0], result[4]
        return result


def expert_episodes(recipe: Recipe, hf_tokenizer: Any, count: int) -> list[Episode]:
    """Play ``count`` episodes with the noisy expert; the environments alternate.

    The episodes depend only on the recipe's environments, context, seed, ``expert_noise`` and turn
    limit.

    Args:
        recipe: the experiment.
        hf_tokenizer: a Hugging Face tokenizer.
        count: number of episodes.

    Raises:
        UnknownNameError: an environment has no expert.
    """
    from msgspec.structs import replace

    unlimited = replace(recipe, limits=Limits(max_turns=recipe.limits.max_turns))
    factory = MachineFactory(unlimited, hf_tokenizer)
    first = _FIRST_SEED - recipe.seed * count
    return [
        _play(factory, Task(k, k % len(recipe.env), first - k, k), hf_tokenizer)
        for k in range(count)
    ]


def _play(factory: MachineFactory, task: Task, hf_tokenizer: Any) -> Episode:
    machine = factory(task)
    shown = _Shown(machine.env)
    machine.env = shown
    config = factory.recipe.env[task.env]
    player = get_player("expert", config.id, seed=task.seed)
    rng = random.Random(f"noise {task.seed}")
    prompt = machine.start()
    player.reset(*shown.shown)
    while prompt is not None:
        text = _act(player, shown, rng, factory.recipe.model.tiny.expert_noise)
        ids = hf_tokenizer.encode(text, add_special_tokens=False)
        prompt = machine.feed(Completion([*ids, hf_tokenizer.eos_token_id]))
    return machine.episode


def sample_actions(config: EnvConfig, episodes: int = 20) -> str:
    """Return the expert's actions without noise on a few seeds; they identify it in the cache."""
    env = make(config.id, **config.kwargs)
    actions: list[str] = []
    for seed in range(episodes):
        observation, info = env.reset(seed=seed)
        player = get_player("expert", config.id, seed=seed)
        player.reset(observation, info)
        over = False
        while not over:
            actions.append(player.act(observation, info))
            observation, _, terminated, truncated, info = env.step(actions[-1])
            over = terminated or truncated
    return "\n".join(actions)


def _act(player: Player, env: _Shown, rng: random.Random, noise: float) -> str:
    """Return the expert's action, or, with probability ``noise``, a random one."""
    action = player.act(*env.shown)  # called in every turn: the expert has a state
    return env.random_action(rng) if rng.random() < noise else action
