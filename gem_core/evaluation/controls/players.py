"""Two players without a model: random legal actions, and actions that are fixed beforehand."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from gem_core.env.interface import Env
from gem_core.envs.single_turn import SingleTurn
from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request
from gem_core.evaluation.contenders import play_without_tokens
from gem_core.evaluation.items import Item
from gem_core.evaluation.runner import ItemPolicy, Record
from gem_core.runs.recipe.recipe import Recipe

DRAWS = 50
"""Random actions that are drawn at most until one is legal."""
Sequences = Mapping[str, Sequence[str]]
"""Id of an environment -> the actions that are played there, one after another."""


class BlindPlayer:
    """Plays a fixed sequence of actions, from its beginning again when it is over.

    It is a `gem_core.evaluation.contenders.Contender`. A sequence of one action is a constant
    answer. Neither observations nor rewards reach it. Every environment that is played has one.
    """

    def __init__(self, name: str, sequences: Sequences) -> None:
        self.name = name
        self._sequences = sequences

    def describe(self) -> dict[str, Any]:
        """See `gem_core.evaluation.contenders.Contender`."""
        return {"blind": {env: list(actions) for env, actions in self._sequences.items()}}

    def play(self, recipe: Recipe, items: Iterable[Item], record: Record) -> None:
        """See `gem_core.evaluation.contenders.Contender`."""
        play_without_tokens(recipe, items, _Blind(self._sequences), record)


class RandomLegalPlayer:
    """Plays random actions, and only legal ones where a copy of the environment can tell.

    It is a `gem_core.evaluation.contenders.Contender`. In an episode of several turns of an
    environment that cannot block, an action is tried on a copy first, and another one is drawn (at
    most `DRAWS` times) where the copy calls it an error. Nothing else of the copy is looked at.
    """

    name = "random"

    def describe(self) -> dict[str, Any]:
        """See `gem_core.evaluation.contenders.Contender`."""
        return {"player": "random, legal"}

    def play(self, recipe: Recipe, items: Iterable[Item], record: Record) -> None:
        """See `gem_core.evaluation.contenders.Contender`."""
        play_without_tokens(recipe, items, _RandomLegal(), record)


class _Blind(ItemPolicy):
    """`gem_core.evaluation.runner.ItemPolicy` of `BlindPlayer`."""

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences

    async def complete(self, request: Request) -> Completion:
        actions = self._sequences[request.machine.env_id]
        return Completion([], text=actions[request.machine.turn % len(actions)])


class _RandomLegal(ItemPolicy):
    """`gem_core.evaluation.runner.ItemPolicy` of `RandomLegalPlayer`."""

    async def complete(self, request: Request) -> Completion:
        return Completion([], text=random_legal_action(request.machine.env, Random(request.seed)))


def random_legal_action(env: Env, rng: Random) -> str:
    """Return a random action, a legal one where that can be found out; see `RandomLegalPlayer`."""
    action = env.random_action(rng)
    if env.slow or isinstance(env.unwrapped, SingleTurn):
        return action
    for _ in range(DRAWS):
        if not copy.deepcopy(env).step(action)[4].get("error"):
            break
        action = env.random_action(rng)
    return action
