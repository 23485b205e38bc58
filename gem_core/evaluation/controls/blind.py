"""Fits the best constant answer and the best blind sequence of actions to training tasks.

A blind player sees no observation: it plays the same actions in every episode. What it reaches
needs no understanding of the task, so a policy that is no better has shown none.

The search is bounded, and has no random part besides the random player's actions:

1. The scripted expert (where there is one) and the random player play the training tasks. Their
   actions are the candidates, at most `Effort.constants` for any turn and `Effort.actions` for each
   turn, the most frequent first.
2. Each candidate is played as a constant. The best one is the constant answer.
3. Sequences to begin with: the constants, cycles of two of the best ones, the expert's most
   frequent whole episodes, and its most frequent action in each turn.
4. The best `Effort.starts` of them are improved by coordinate ascent: turn by turn, every candidate
   of that turn is tried, and the best is kept, at most `Effort.sweeps` times over.

Better is: more successes on the training tasks, and with as many the larger sum of rewards. The
result is a lower bound of what a blind player could reach.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple, TypeAlias

from gem_core.envs.players import get_player
from gem_core.errors import UnknownNameError
from gem_core.evaluation.controls.file import FitRecord
from gem_core.evaluation.controls.players import random_legal_action
from gem_core.runs.environments.data import make_for_run
from gem_core.runs.recipe.recipe import EnvConfig, Recipe
from gem_core.runs.splits import run_envs, split_envs
from gem_core.runs.tasks import Task, train_task

Actions: TypeAlias = tuple[str, ...]
Score: TypeAlias = tuple[float, float]
"""Share of successes, and mean reward."""


class Effort(NamedTuple):
    """How long is searched.

    Attributes:
        tasks: training tasks that are played at most.
        constants: candidates of the constant answer, from each of the two players.
        actions: candidates of each turn.
        starts: sequences that are improved.
        sweeps: rounds of the coordinate ascent.
        length: turns of a sequence at most.
    """

    tasks: int
    constants: int
    actions: int
    starts: int
    sweeps: int
    length: int


FAST = Effort(tasks=200, constants=16, actions=12, starts=2, sweeps=2, length=24)
SLOW = Effort(tasks=24, constants=8, actions=4, starts=1, sweeps=1, length=4)
"""The same for environments whose steps may block, such as those that run programs."""


def fit_blind(recipe: Recipe) -> dict[str, FitRecord]:
    """Fit constants and sequences for the environments of a recipe's evaluation.

    Only training tasks of the recipe's run are played, those of the first groups. An environment
    that the training does not play gets what fits all training tasks together.

    Returns:
        Id of each environment of the evaluation -> what was fitted.

    Raises:
        DataError: the data of an environment are not available.
    """
    configs = split_envs(recipe, "train")
    fits = {}
    for env_id in dict.fromkeys(config.id for config in recipe.envs("eval")):
        positions = [k for k, config in enumerate(configs) if config.id == env_id]
        arena = Arena(recipe, positions or range(len(configs)))
        try:
            fits[env_id] = _fit(arena)
        finally:
            arena.close()
    return fits


class Arena:
    """Training tasks, on which sequences are played without an episode machine."""

    def __init__(self, recipe: Recipe, positions: Sequence[int]) -> None:
        envs = run_envs(recipe)["train"]
        self._configs = [env.config for env in envs]
        self._envs = {k: make_for_run(*envs[k]) for k in positions}
        self.effort = SLOW if any(env.slow for env in self._envs.values()) else FAST
        self._limits = {k: _limit(recipe, self._configs[k]) for k in positions}
        self.tasks = _tasks(recipe, set(positions), self.effort.tasks)

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs.values():
            env.close()

    def score(self, actions: Actions) -> Score:
        """Return how well a sequence does, played from its beginning again when it is over."""
        wins = reward = 0.0
        for task in self.tasks:
            env = self._envs[task.env]
            env.reset(seed=task.seed)
            result = _Played()
            while not result.over(self._limits[task.env]):
                result.add(env.step(actions[result.turns % len(actions)]))
            wins += result.success
            reward += result.reward
        return wins / len(self.tasks), reward / len(self.tasks)

    def episodes(self, kind: str) -> list[Actions]:
        """Return a player's actions in each task; none without an expert."""
        try:
            return [self._actions(kind, task) for task in self.tasks]
        except UnknownNameError:
            return []

    def _actions(self, kind: str, task: Task) -> Actions:
        env = self._envs[task.env]
        env_id = self._configs[task.env].id
        rng = Random(f"blind {task.seed}")
        shown = env.reset(seed=task.seed)
        player = get_player("expert", env_id, task.seed, env=env) if kind == "expert" else None
        if player is not None:
            player.reset(*shown)
        actions: list[str] = []
        result = _Played()
        while not result.over(self._limits[task.env]):
            try:
                actions.append(player.act(*shown) if player else random_legal_action(env, rng))
            except NotImplementedError:  # the data have no right answer to this item
                actions.append(env.random_action(rng))
            step = env.step(actions[-1])
            result.add(step)
            shown = step[0], step[4]
        return tuple(actions)


class _Played:
    """An episode so far."""

    def __init__(self) -> None:
        self.turns = 0
        self.reward = 0.0
        self.success = False
        self._ended = False

    def over(self, limit: int | None) -> bool:
        return self._ended or self.turns == limit

    def add(self, step: tuple[Any, float, bool, bool, dict[str, Any]]) -> None:
        _, reward, terminated, truncated, info = step
        self.turns += 1
        self.reward += reward
        self._ended = terminated or truncated
        self.success = self._ended and bool(info.get("success"))


def _limit(recipe: Recipe, config: EnvConfig) -> int | None:
    """Return the turns that an episode of an environment has at most, besides its own rules."""
    return config.max_turns if config.max_turns is not None else recipe.limits.max_turns


def _tasks(recipe: Recipe, positions: set[int], count: int) -> list[Task]:
    """Return the first training tasks of some environments, one for each group."""
    groups = recipe.train.steps * recipe.groups_per_step
    every = (train_task(recipe, k * recipe.batch.group_size) for k in range(groups))
    tasks = []
    for task in every:
        if task.env in positions:
            tasks.append(task)
            if len(tasks) == count:
                break
    return tasks


def _fit(arena: Arena) -> FitRecord:
    effort = arena.effort
    experts = arena.episodes("expert")
    random = arena.episodes("random")
    common = _most_common(experts, effort.constants) + _most_common(random, effort.constants)
    scores: dict[Actions, Score] = {(a,): arena.score((a,)) for a in dict.fromkeys(common)}
    constants = sorted(scores, key=lambda actions: scores[actions], reverse=True)
    best = constants[0]
    for actions in _beginnings(constants, experts, effort):
        if actions not in scores:
            scores[actions] = arena.score(actions)
    starts = sorted(scores, key=lambda actions: scores[actions], reverse=True)[: effort.starts]
    choices = _choices(experts, random, [a for (a,) in constants], effort)
    ends = [_ascend(arena, start, scores[start], choices) for start in starts]
    sequence, reached = max(ends, key=lambda end: end[1])
    return FitRecord(best[0], scores[best][0], sequence, reached[0], len(arena.tasks))


def _most_common(episodes: Sequence[Actions], count: int) -> list[str]:
    counted = Counter(action for actions in episodes for action in actions)
    return [action for action, _ in counted.most_common(count)]


def _beginnings(
    constants: Sequence[Actions], experts: Sequence[Actions], effort: Effort
) -> list[Actions]:
    """Return sequences besides the constants, see the module's third step."""
    best = [action for (action,) in constants[: max(2, effort.actions // 2)]]
    cycles = [(one, other) for one in best for other in best if one != other]
    cut = [actions[: effort.length] for actions in experts if actions]
    whole = [actions for actions, _ in Counter(cut).most_common(effort.constants)]
    modes = tuple(common[0] for common in _by_turn(experts, effort.length, 1))
    return [*(cycles if len(modes) != 1 else ()), *whole, *([modes] if modes else ())]


def _by_turn(episodes: Sequence[Actions], length: int, count: int) -> list[list[str]]:
    """Return the most common actions of each turn."""
    longest = min(length, max(map(len, episodes), default=0))
    return [_most_common([e[turn : turn + 1] for e in episodes], count) for turn in range(longest)]


def _choices(
    experts: Sequence[Actions], random: Sequence[Actions], constants: list[str], effort: Effort
) -> list[list[str]]:
    """Return the candidates of each turn: the expert's of that turn, then the best constants."""
    length = min(effort.length, max(map(len, [*experts, *random]), default=1))
    own = _by_turn(experts, length, effort.actions // 2)
    own += [[] for _ in range(length - len(own))]
    return [list(dict.fromkeys([*actions, *constants]))[: effort.actions] for actions in own]


def _ascend(
    arena: Arena, start: Actions, score: Score, choices: Sequence[Sequence[str]]
) -> tuple[Actions, Score]:
    """Improve a sequence turn by turn; return it with its score."""
    long = tuple(start[turn % len(start)] for turn in range(max(len(start), len(choices))))
    now = arena.score(long)
    if now < score:
        return start, score  # a cycle, which a longer sequence does not repeat
    for _ in range(arena.effort.sweeps):
        before = now
        for turn, candidates in enumerate(choices):
            for action in candidates:
                if action != long[turn]:
                    tried = (*long[:turn], action, *long[turn + 1 :])
                    reached = arena.score(tried)
                    if reached > now:
                        long, now = tried, reached
        if now == before:
            break
    return long, now
