"""Batches of trajectories, and the gradient that an estimator makes of one.

The gradient of a batch is what a trainer's loss has before its first update:
``sum over turns of weight * advantage * score``. The weights are those of the recipe's key
``algorithm.loss_aggregation``, for actions of one token: "constant" divides by the number of
episodes (GEM's definition), "token" by the number of turns in the batch, and "sequence" by the
number of the episode's turns and the number of episodes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from exact import IntArray, Trajectories
from processes import FloatArray

from gem_core.advantages import TurnBatch, compute_advantages, estimator_needs

AGGREGATIONS = ("constant", "token", "sequence")
CRITICS = ("exact", "zero")


class Case(NamedTuple):
    """An estimator and its settings.

    Attributes:
        estimator: name in gem-core's registry.
        gamma: discount per turn.
        lam: lambda of GAE.
        critic: what ``values`` are, for estimators that read them: "exact" or "zero".
        aggregation: of the loss.
    """

    estimator: str
    gamma: float = 1.0
    lam: float = 0.95
    critic: str = "exact"
    aggregation: str = "constant"

    @property
    def label(self) -> str:
        """The case in a table."""
        needs = estimator_needs(self.estimator)
        critic = f", V {self.critic}" if needs.values else ""
        return f"`{self.estimator}`{critic}"


def turns_of(t: Trajectories, chosen: IntArray) -> tuple[IntArray, IntArray]:
    """Return the turns of chosen trajectories, as places in `Trajectories`, and their episodes."""
    length = t.length[chosen]
    episode = np.repeat(np.arange(chosen.size), length)
    before = np.cumsum(length) - length
    turns = np.arange(episode.size) - before[episode] + t.first[chosen][episode]
    return turns, episode


def advantages(
    t: Trajectories, turns: IntArray, episode: IntArray, group: IntArray, case: Case
) -> FloatArray:
    """Return the advantages that gem-core's estimator computes of a batch, float64 [turns]."""
    values: Any = None
    if estimator_needs(case.estimator).values:
        values = t.value[turns] if case.critic == "exact" else np.zeros(turns.size)
    batch = TurnBatch(t.reward[turns], episode, group=group[episode], values=values)
    return compute_advantages(case.estimator, batch, gamma=case.gamma, lam=case.lam)


def aggregate(
    advantage: FloatArray, score: FloatArray, episode: IntArray, aggregation: str
) -> FloatArray:
    """Return the gradient of a batch of turns: advantages [N], scores [N, K], episodes [N]."""
    episodes = int(episode[-1]) + 1
    if aggregation == "token":
        return advantage @ score / advantage.size
    if aggregation == "sequence":
        advantage = advantage / np.bincount(episode)[episode]
    return advantage @ score / episodes


def batch_gradient(t: Trajectories, chosen: IntArray, group: IntArray, case: Case) -> FloatArray:
    """Return an estimator's gradient of the batch of chosen trajectories, float64 [K].

    Args:
        t: all trajectories.
        chosen: int64 [B], the trajectory of each episode.
        group: int64 [B], the group of each episode.
        case: the estimator.
    """
    turns, episode = turns_of(t, chosen)
    advantage = advantages(t, turns, episode, group, case)
    return aggregate(advantage, t.score[turns], episode, case.aggregation)


def draw(
    t: Trajectories, rng: np.random.Generator, repetitions: int, episodes: int, group_size: int
) -> tuple[IntArray, IntArray]:
    """Draw batches: a task for each group, and the group's episodes of it.

    Returns:
        The trajectories [repetitions, B], and the group of each place [B].
    """
    groups = episodes // group_size
    weights = np.bincount(t.task, weights=t.probability)
    tasks = np.repeat(rng.choice(weights.size, (repetitions, groups), p=weights), group_size, 1)
    chosen = np.empty((repetitions, episodes), dtype=np.int64)
    for task, weight in enumerate(weights):
        own = np.flatnonzero(t.task == task)
        places = tasks == task
        chosen[places] = rng.choice(own, int(places.sum()), p=t.probability[own] / weight)
    return chosen, np.repeat(np.arange(groups), group_size)
