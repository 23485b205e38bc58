"""Which episodes a run plays: the same ones, in the same order, in every trainer.

Task ``index`` of a run fixes environment and seed. Step ``s`` plays the tasks
``s * batch.episodes ... (s + 1) * batch.episodes - 1``; the episodes of one group are adjacent and
share everything. Training and evaluation seeds never meet: run seed ``r`` trains on
``r * 1_000_000_000 + group`` and everybody evaluates on ``-1 - index``. A run that goes on from
another's model (``train.start``) plays the groups after those of the other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gem_core.episodes.context import Context, HFTokenizer, Template, Tokenizer, get_template
from gem_core.episodes.data import Episode
from gem_core.episodes.machine import EpisodeMachine
from gem_core.errors import GemError
from gem_core.registration import make
from gem_core.training.recipe import Recipe

_SEEDS_PER_RUN = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """One episode to play.

    Attributes:
        index: number of the episode in the run (or in the evaluation).
        env: position of its environment in ``recipe.env``.
        seed: seed of ``env.reset``.
        group: id of the initial state, shared by the episodes of a group.
    """

    index: int
    env: int
    seed: int
    group: int


def train_task(recipe: Recipe, index: int) -> Task:
    """The ``index``-th training episode of the run."""
    group = index // recipe.batch.group_size
    draw = recipe.train.start * recipe.groups_per_step + group
    return Task(index, _pick_env(recipe, draw), recipe.seed * _SEEDS_PER_RUN + draw, group)


def eval_task(recipe: Recipe, index: int) -> Task:
    """The ``index``-th held-out episode; the environments of a mix take turns."""
    return Task(index, index % len(recipe.env), -1 - index // len(recipe.env), index)


def step_tasks(recipe: Recipe, step: int, shard: int = 0, shards: int = 1) -> list[Task]:
    """The tasks of training step ``step`` (0-based), or one of ``shards`` equal parts of them."""
    size = recipe.batch.episodes // shards
    first = step * recipe.batch.episodes + shard * size
    return [train_task(recipe, first + k) for k in range(size)]


def require_step(recipe: Recipe, step: int, episodes: Sequence[Episode]) -> None:
    """Raise GemError unless ``episodes`` are, in order, those of step ``step`` (1-based)."""
    size, found = recipe.batch.episodes, [episode.index for episode in episodes]
    first = (step - 1) * size
    if found != list(range(first, first + size)):
        raise GemError(
            f"Step {step} is the tasks {first} to {first + size - 1}, in order; it got {found}: "
            "the trainer dropped, repeated or reordered episodes."
        )


def _pick_env(recipe: Recipe, group: int) -> int:
    """Weighted choice that depends on the run's seed and the group alone."""
    if len(recipe.env) == 1:
        return 0
    weights = [env.weight for env in recipe.env]
    return random.Random(f"{recipe.seed}/{group}").choices(range(len(weights)), weights)[0]


class MachineFactory:
    """Builds the machine of a task exactly as the recipe says; picklable if its tokenizer is.

    Args:
        recipe: the experiment.
        tokenizer: a Hugging Face tokenizer, or None for text and chat prompts.
    """

    def __init__(self, recipe: Recipe, tokenizer: Any = None) -> None:
        self.recipe = recipe
        context = recipe.context
        self.template: Template = get_template(context.template, tokenizer, context.system)
        self.tokenizer: Tokenizer | None = (
            None if tokenizer is None else HFTokenizer(tokenizer, self.template)
        )

    @property
    def stop_ids(self) -> list[int]:
        """Token ids the engine must stop at."""
        return sorted(self.tokenizer.stop_ids) if self.tokenizer else []

    def __call__(self, task: Task) -> EpisodeMachine:
        """A fresh machine with a fresh environment for ``task``."""
        from msgspec.structs import replace

        config, context = self.recipe.env[task.env], self.recipe.context
        limits = self.recipe.limits
        if config.max_turns is not None:
            limits = replace(limits, max_turns=config.max_turns)
        return EpisodeMachine(
            make(config.id, **config.kwargs),
            Context(self.template, self.tokenizer, context.history, context.window),
            limits,
            seed=task.seed,
            group=task.group,
            index=task.index,
            env_id=config.id,
        )

    def train(self, index: int) -> EpisodeMachine:
        """Machine of the ``index``-th training episode."""
        return self(train_task(self.recipe, index))

    def held_out(self, index: int) -> EpisodeMachine:
        """Machine of the ``index``-th held-out episode."""
        return self(eval_task(self.recipe, index))
