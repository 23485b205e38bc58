"""The tasks of a run: which episodes it plays, in which order. They are the same in every trainer.

Task ``index`` of a run determines environment and seed. Step ``s`` plays the tasks
``s * batch.episodes ... (s + 1) * batch.episodes - 1``; the episodes of one group are adjacent and
have the same environment and seed. Training and evaluation seeds are disjoint: run seed ``r``
trains on ``r * 1_000_000_000 + group``, and every run is evaluated on
``-1 - index // environments``. A run that continues from the model of another (``train.start``)
plays the groups that follow the other's.

Other seeds are not always other tasks: `gem_core.runs.task_overlap` counts them. Items of data
sets are disjoint (`gem_core.runs.splits`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gem_core.env.interface import Env
from gem_core.episodes.compact import Compact
from gem_core.episodes.context import (
    Context,
    HFTokenizer,
    Template,
    Tokenizer,
    chat_template,
)
from gem_core.episodes.data import Episode
from gem_core.episodes.machine import EpisodeMachine
from gem_core.errors import GemError, RecipeError, require_kind
from gem_core.execution.server_client.opening import Wanted
from gem_core.runs.environments.data import compare_served, make_for_run
from gem_core.runs.environments.servers import wanted
from gem_core.runs.environments.tools import count_tokens_with, native_functions
from gem_core.runs.environments.workers import run_builder, session_env, worker_env
from gem_core.runs.generation_config import read_eos_ids
from gem_core.runs.recipe.recipe import EnvConfig, Recipe, Split
from gem_core.runs.recipe.templates import recipe_template
from gem_core.runs.splits import RunEnvs, run_envs

_SEEDS_PER_RUN = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """One episode to play.

    Attributes:
        index: number of the episode in the run (or in the evaluation).
        env: position of its environment in ``recipe.envs(split)``.
        seed: seed of ``env.reset``.
        group: id of the initial state, shared by the episodes of a group.
        split: whether the episode is trained on (``"train"``) or evaluates (``"eval"``).
    """

    index: int
    env: int
    seed: int
    group: int
    split: Split = "train"


def train_task(recipe: Recipe, index: int) -> Task:
    """Return the ``index``-th training episode of the run."""
    group = index // recipe.batch.group_size
    draw = recipe.train.start * recipe.groups_per_step + group
    seed = recipe.seed * _SEEDS_PER_RUN + draw
    return Task(index, _pick_env(recipe, draw), seed, group)


def eval_task(recipe: Recipe, index: int) -> Task:
    """Return the ``index``-th evaluation episode; the environments of a mix alternate."""
    count = len(recipe.envs("eval"))
    return Task(index, index % count, -1 - index // count, group=index, split="eval")


def step_tasks(recipe: Recipe, step: int, shard: int = 0, shards: int = 1) -> list[Task]:
    """Return the tasks of a training step (0-based), or one of ``shards`` equal parts of them."""
    size = recipe.batch.episodes // shards
    first = step * recipe.batch.episodes + shard * size
    return [train_task(recipe, first + k) for k in range(size)]


def require_step(recipe: Recipe, step: int, episodes: Sequence[Episode]) -> None:
    """Check that ``episodes`` are those of step ``step`` (1-based), in order.

    Raises:
        GemError: they are not.
    """
    size = recipe.batch.episodes
    played = [episode.index for episode in episodes]
    first = (step - 1) * size
    if played != list(range(first, first + size)):
        raise GemError(
            f"Step {step} has the tasks {first} to {first + size - 1}, in order, but it got "
            f"{played}: the trainer dropped, repeated or reordered episodes."
        )


def _pick_env(recipe: Recipe, group: int) -> int:
    """Return a weighted choice that depends only on the run's seed and the group."""
    if len(recipe.env) == 1:
        return 0
    weights = [env.weight for env in recipe.env]
    return random.Random(f"{recipe.seed}/{group}").choices(range(len(weights)), weights)[0]


def compact_of(recipe: Recipe) -> Compact | None:
    """Return when and how a policy is asked for summaries; ``None``: never."""
    config = recipe.context.compact
    if recipe.context.history != "compact" or config.budget is None:
        return None
    return Compact(
        budget=config.budget,
        prompt=config.prompt,
        max_tokens=config.max_tokens or recipe.limits.max_tokens_per_turn,
        trained=config.trained,
    )


class MachineFactory:
    """Builds the machine of a task as the recipe describes it; picklable if its tokenizer is.

    Args:
        recipe: the experiment.
        tokenizer: a Hugging Face tokenizer, or ``None`` for text and chat prompts.
        inline: play in this process whatever ``[workers]`` asks for, for scripted players, which
            look into their environment.
        envs: the environments, where they are known (`gem_core.runs.resolved.ResolvedRun.envs`);
            ``None`` = those of the recipe.

    Raises:
        RecipeError: the template cannot be used with this tokenizer, or ``compact`` without one;
            training and evaluation would divide the same data in different ways.
    """

    def __init__(
        self,
        recipe: Recipe,
        tokenizer: Any = None,
        *,
        inline: bool = False,
        envs: RunEnvs | None = None,
    ) -> None:
        if envs is None:
            require_kind("MachineFactory(recipe)", recipe, Recipe, "load_recipe(...) returns one.")
            envs = run_envs(recipe)
        self.recipe = recipe
        self._backend = "inline" if inline else recipe.workers.backend
        self._builders: dict[tuple[Split, int], bytes] = {}
        self._wanted: dict[tuple[Split, int], Wanted] = {}
        self._run_envs = envs
        self.envs: dict[Split, list[EnvConfig]] = {
            split: [env.config for env in members] for split, members in self._run_envs.items()
        }
        context = recipe.context
        self._compact = compact_of(recipe)
        if self._compact is not None and tokenizer is None:
            raise RecipeError(
                'context.history = "compact" counts tokens, and there is no tokenizer here: use '
                "another history, or a model on this machine."
            )
        self.template: Template = recipe_template(context, tokenizer)
        self._templates = self._native_templates(tokenizer)
        self.tokenizer: Tokenizer | None = None
        if tokenizer is not None:
            revision = recipe.model.revision
            same = getattr(tokenizer, "name_or_path", None) == recipe.model.path
            eos_ids = read_eos_ids(tokenizer, revision if same else None)
            self.tokenizer = HFTokenizer(tokenizer, self.template, eos_ids)

    def _native_templates(self, tokenizer: Any) -> dict[tuple[Split, int], Template]:
        """Return the templates of the environments whose tools the chat template describes."""
        templates: dict[tuple[Split, int], Template] = {}
        for split, members in self._run_envs.items():
            for number, (config, key) in enumerate(members):
                if config.tools and config.tool_use.native:
                    env = make_for_run(config, key)
                    system = self.recipe.context.system
                    template = chat_template(tokenizer, system, native_functions(env))
                    templates[split, number] = template
                    env.close()
        return templates

    @property
    def several_segments(self) -> bool:
        """Whether an episode may have several token sequences: its history is rewritten."""
        templates = (self.template, *self._templates.values())
        rewrites = any(template.renderer is not None for template in templates)
        return self.recipe.context.history != "append" or rewrites

    @property
    def stop_ids(self) -> list[int]:
        """Token ids at which the engine must stop."""
        return sorted(self.tokenizer.stop_ids) if self.tokenizer else []

    def __call__(self, task: Task) -> EpisodeMachine:
        """Return a fresh machine with a fresh environment for ``task``."""
        from msgspec.structs import replace

        config = self.envs[task.split][task.env]
        context = self.recipe.context
        limits = self.recipe.limits
        if config.max_turns is not None:
            limits = replace(limits, max_turns=config.max_turns)
        if self._backend == "thread" and limits.turn_deadline_s is None:
            limits = replace(limits, turn_deadline_s=self.recipe.workers.deadline_s)
        env = self._env(task, limits.turn_deadline_s)
        template = self._templates.get((task.split, task.env), self.template)
        return EpisodeMachine(
            env,
            Context(template, self.tokenizer, context.history, context.window, self._compact),
            limits,
            seed=task.seed,
            group=task.group,
            index=task.index,
            env_id=config.id,
            run_seed=self.recipe.seed,
            split=task.split,
        )

    def _env(self, task: Task, deadline_s: float | None) -> Env:
        """Return a fresh environment: here, in a worker or behind a server."""
        place = (task.split, task.env)
        config, key = self._run_envs[task.split][task.env]
        encode = None if self.tokenizer is None else self.tokenizer.encode
        if self._backend == "server":
            if place not in self._wanted:
                self._wanted[place] = wanted(config, key, compare_served)
            return session_env(self.recipe.workers, self._wanted[place], deadline_s)
        if self._backend in ("process", "ray"):
            if place not in self._builders:
                self._builders[place] = run_builder(config, key, counts=encode is not None)
            return worker_env(self.recipe.workers, self._builders[place], deadline_s, encode)
        env = make_for_run(config, key)
        if encode is not None:
            count_tokens_with(env, encode)
        return env

    def train(self, index: int) -> EpisodeMachine:
        """Return the machine of the ``index``-th training episode."""
        return self(train_task(self.recipe, index))

    def evaluation(self, index: int) -> EpisodeMachine:
        """Return the machine of the ``index``-th evaluation episode."""
        return self(eval_task(self.recipe, index))
