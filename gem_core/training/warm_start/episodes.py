"""A teacher's episodes for the warm start, played through the real episode machine.

The teacher is the scripted player that the recipe names: the expert, or a weak player, whose
strategy leaves room for reinforcement learning. The expert is the scripted player of a game,
or the solution of the item where only the data hold it (`gem_core.envs.players.player.Peek`); both
use the environment that is played. Where there is neither
-- the environment has no expert, or the data have no solution of an item -- the warm start imitates
`Env.random_action`, from which the model learns the form of an answer and nothing else. The record
of the build (``warm_start.json``) counts such actions.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from typing import Any

from gem_core.env.interface import Env, Wrapper
from gem_core.envs.players import Player, RandomPlayer, get_player, require_player
from gem_core.episodes.data import Completion, Episode, FinishReason
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.errors import GemError, RecipeError, UnknownNameError
from gem_core.runs.environments.data import make_for_run
from gem_core.runs.recipe.recipe import EnvConfig, Recipe
from gem_core.runs.tasks import MachineFactory, Task
from gem_core.training.warm_start.imitation import imitation_of

_FIRST_SEED = -(10**12)
"""The first seed of the warm start; the others are below it, apart from all other seeds."""


class _Ungraded(Wrapper):
    """A question whose answer is not graded: graders are slow, and cloning needs no score."""

    def step(self, action: str) -> Any:
        return "", 0.0, True, False, {"success": False, "graded": False}


def expert_episodes(
    recipe: Recipe, hf_tokenizer: Any, count: int, guessed: Counter[str] | None = None
) -> list[Episode]:
    """Play ``count`` episodes with the noisy teacher; the environments alternate.

    The episodes depend only on the recipe's environments, context, seed, turn limit and players
    (`gem_core.training.warm_start.imitation`). Requests for a summary are answered by the teacher's
    `Player.sum_up`, also if the run does not train them; where a teacher does not sum up, by an
    empty one that is not imitated. Answers to single questions that a slow grader would judge are
    not graded. ``guessed`` counts, per environment, the random actions for want of an expert or a
    solution.

    Raises:
        GemError: an environment failed.
    """
    from msgspec.structs import replace

    longest = imitation_of(recipe).longest
    limits = Limits(max_turns=recipe.limits.max_turns, max_tokens_per_turn=longest)
    compact = replace(recipe.context.compact, trained=_teachers_sum_up(recipe))
    context = replace(recipe.context, compact=compact)
    played = replace(recipe, limits=limits, context=context)
    factory = MachineFactory(played, hf_tokenizer, inline=True)
    first = _FIRST_SEED - recipe.seed * count
    guessed = Counter() if guessed is None else guessed
    return [
        _play(factory, Task(k, k % len(recipe.env), first - k, k), hf_tokenizer, guessed)
        for k in range(count)
    ]


def _play(factory: MachineFactory, task: Task, hf_tokenizer: Any, guessed: Counter[str]) -> Episode:
    machine = factory(task)
    if is_question(machine.env) and machine.env.slow:
        machine.env = _Ungraded(machine.env)
    imitation = imitation_of(factory.recipe)
    player = expert_player(machine.env, machine.env_id, task.seed, imitation.teacher)
    habit = _habit(machine.env, machine.env_id, task.seed, imitation.habit)
    rng = random.Random(f"noise {task.seed}")
    end = _end_of_turn(factory, hf_tokenizer)
    prompt = machine.start()
    if prompt is not None:
        player.reset(*machine.shown)
        habit.reset(*machine.shown)
    while prompt is not None:
        if machine.asks_summary:
            prompt = machine.feed(_completion(player.sum_up(), machine, hf_tokenizer, end))
            continue
        action, expert = expert_action(player, machine.env, machine.shown, rng)
        guessed[machine.env_id] += not expert
        other = None if isinstance(habit, RandomPlayer) else habit.act(*machine.shown)
        if rng.random() < imitation.noise:
            action = machine.env.random_action(rng) if other is None else other
        prompt = machine.feed(_completion(action, machine, hf_tokenizer, end))
    if machine.episode.stop_reason.failed:
        raise GemError(f"The expert cannot play the warm start: {machine.episode.error}")
    return machine.episode


def _teachers_sum_up(recipe: Recipe) -> bool:
    """Return whether summaries are asked for, and the teacher of every environment sums up."""
    if recipe.context.history != "compact":
        return False
    teacher = imitation_of(recipe).teacher
    for config in recipe.env:
        env = make_for_run(config, "env")
        player = expert_player(env, config.id, 0, teacher)
        env.close()
        if type(player).sum_up is Player.sum_up:
            return False
    return True


def _end_of_turn(factory: MachineFactory, hf_tokenizer: Any) -> int:
    """Return the token that ends an action: the template's, else the tokenizer's eos token."""
    closing = factory.template.close.strip()
    ids = hf_tokenizer.encode(closing, add_special_tokens=False) if closing else []
    end: int = ids[-1] if ids else hf_tokenizer.eos_token_id
    return end


def _completion(action: str, machine: EpisodeMachine, hf_tokenizer: Any, end: int) -> Completion:
    """Return the action as an engine would: cut off if it is longer than a turn may be."""
    ids = hf_tokenizer.encode(action, add_special_tokens=False)
    if len(ids) >= machine.max_tokens:
        return Completion(ids[: machine.max_tokens], finish_reason=FinishReason.LENGTH)
    return Completion([*ids, end])


def is_question(env: Env) -> bool:
    """Return whether an episode is one question and one answer, without tools before it."""
    from gem_core.envs.single_turn import SingleTurn

    return isinstance(env.unwrapped, SingleTurn) and not hasattr(env, "tools")


def expert_player(env: Env, env_id: str, seed: int, teacher: str = "expert") -> Player:
    """Return the teacher of an environment; for want of an expert, the random player."""
    require_player(teacher, env_id)
    try:
        return get_player(teacher, env_id, seed, env=env)
    except UnknownNameError:
        warnings.warn(
            f"{env_id} has no expert: the warm start of the tiny model imitates random actions, "
            "which teach only the form of an answer.",
            stacklevel=2,
        )
        return RandomPlayer(env, random.Random(seed))


def _habit(env: Env, env_id: str, seed: int, name: str) -> Player:
    """Return the player of the other turns. Its generator is not the teacher's: with the same
    seed, two players that draw from the same moves would agree."""
    return get_player(name, env_id, ~seed, env=env)


def expert_action(
    player: Player, env: Env, shown: tuple[str, dict[str, Any]], rng: random.Random
) -> tuple[str, bool]:
    """Return an action, and whether it is an expert's: without a solution it is a random one."""
    try:
        return player.act(*shown), not isinstance(player, RandomPlayer)
    except NotImplementedError:  # the data have no right answer to this item
        return env.random_action(rng), False


def sample_actions(config: EnvConfig, episodes: int = 20, teacher: str = "expert") -> str:
    """Return the teacher's actions without noise on a few seeds; they identify it in the cache.

    With a player that acts differently under noise than before, ``Player.version`` is part of it.
    Questions are not graded.

    Raises:
        RecipeError: the environment has neither an expert nor random actions.
    """
    env = make_for_run(config, "env")
    one_question = is_question(env)
    actions: list[str] = []
    version = 0
    for seed in range(episodes):
        shown = env.reset(seed=seed)
        player = expert_player(env, config.id, seed, teacher)
        version = player.version
        player.reset(*shown)
        rng = random.Random(seed)
        over = False
        while not over:
            try:
                actions.append(expert_action(player, env, shown, rng)[0])
            except NotImplementedError as error:
                raise RecipeError(
                    f"model.tiny.warm_start_steps: {config.id} has neither an expert nor random "
                    "actions to imitate: set it to 0, or let the environment's class define "
                    "random_action(rng)."
                ) from error
            if one_question:
                break
            observation, _, terminated, truncated, info = env.step(actions[-1])
            shown = observation, info
            over = terminated or truncated
        actions += filter(None, [player.sum_up()])
    env.close()
    return "\n".join([*actions, f"version {version}"] if version else actions)
