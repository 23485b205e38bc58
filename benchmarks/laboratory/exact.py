"""What can be had exactly: all trajectories of a process, its objective and their gradients.

With ``gamma = 1`` the objective is ``J = E[sum_t r_t]``, otherwise ``E[sum_t gamma^t r_t]``. Its
gradient is ``sum over trajectories of p * sum_t gamma^t G_t score_t``, where
``score_t = grad log pi(a_t | s_t)`` and ``G_t`` is the discounted return from turn t.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from processes import FloatArray, Process, State

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Trajectories:
    """Every trajectory of a process under its policy; the turns of all, one after the other.

    Attributes:
        probability: float64 [M], sums to 1.
        task: int64 [M], place of the trajectory's task.
        first: int64 [M], place of the trajectory's first turn in the arrays of turns.
        length: int64 [M], number of turns.
        reward: float64 [N], of each turn.
        score: float64 [N, K], gradient of the log-probability of each turn's action.
        value: float64 [N], expected undiscounted return from each turn's state.
        action: int64 [N], the action of each turn.
        state: the state of each turn, N of them.
    """

    probability: FloatArray
    task: IntArray
    first: IntArray
    length: IntArray
    reward: FloatArray
    score: FloatArray
    value: FloatArray
    action: IntArray
    state: tuple[State, ...]

    @property
    def of_turn(self) -> IntArray:
        """The trajectory of each turn, int64 [N]."""
        return np.repeat(np.arange(self.length.size), self.length)

    @property
    def place(self) -> IntArray:
        """The number of each turn in its trajectory, from 0, int64 [N]."""
        return np.arange(self.reward.size) - self.first[self.of_turn]

    def total(self, of_turns: FloatArray) -> FloatArray:
        """Sum numbers of turns, [N] or [N, K], within each trajectory: [M] or [M, K]."""
        return np.add.reduceat(of_turns, self.first, axis=0)

    def mean(self, of_trajectories: FloatArray) -> FloatArray:
        """Return the expectation of numbers of trajectories, [M] or [M, K]."""
        return self.probability @ of_trajectories

    def returns(self, gamma: float = 1.0) -> FloatArray:
        """Return G_t of every turn, float64 [N]."""
        out = self.reward.copy()
        goes_on = self.of_turn[1:] == self.of_turn[:-1]
        for turn in np.flatnonzero(goes_on)[::-1]:
            out[turn] += gamma * out[turn + 1]
        return out


class _Turn(NamedTuple):
    reward: float
    score: FloatArray
    value: float
    action: int
    state: State


def list_trajectories(process: Process) -> Trajectories:
    """List all trajectories of a process, with their probabilities and scores."""
    value = values(process)
    found = [
        (number, task.weight * probability, turns)
        for number, task in enumerate(process.tasks)
        for probability, turns in _from(process, task.state, value)
    ]
    length = np.array([len(turns) for _, _, turns in found])
    turns = [turn for _, _, own in found for turn in own]
    return Trajectories(
        probability=np.array([probability for _, probability, _ in found]),
        task=np.array([number for number, _, _ in found]),
        first=np.concatenate([[0], np.cumsum(length)[:-1]]),
        length=length,
        reward=np.array([turn.reward for turn in turns]),
        score=np.array([turn.score for turn in turns]),
        value=np.array([turn.value for turn in turns]),
        action=np.array([turn.action for turn in turns]),
        state=tuple(turn.state for turn in turns),
    )


def policy(process: Process, state: State) -> FloatArray:
    """Return the probability of each action."""
    logits = process.features(state) @ process.theta
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def values(process: Process) -> dict[State, float]:
    """Return the expected undiscounted return from every state that can be reached."""
    known: dict[State, float] = {}

    def value(state: State | None) -> float:
        if state is None:
            return 0.0
        if state not in known:
            known[state] = sum(
                float(chance) * o.probability * (o.reward + value(o.state))
                for action, chance in enumerate(policy(process, state))
                for o in process.outcomes(state, action)
            )
        return known[state]

    for task in process.tasks:
        value(task.state)
    return known


def objective(t: Trajectories, gamma: float = 1.0) -> float:
    """Return the expected return of an episode, discounted from its first turn."""
    return float(t.mean(t.returns(gamma)[t.first]))


def gradient(t: Trajectories, gamma: float = 1.0) -> FloatArray:
    """Return the gradient of `objective`, float64 [K]."""
    return expected_sum(t, gamma**t.place * t.returns(gamma))


def expected_sum(t: Trajectories, of_turns: FloatArray) -> FloatArray:
    """Return E[sum_t c_t score_t] for a number c_t of each turn [N]; float64 [K]."""
    return t.mean(t.total(of_turns[:, None] * t.score))


def gradient_of(t: Trajectories, of_trajectories: FloatArray) -> FloatArray:
    """Return the gradient of the expectation of a number of each trajectory [M]; float64 [K]."""
    return expected_sum(t, of_trajectories[t.of_turn])


def _from(
    process: Process, state: State | None, value: dict[State, float]
) -> Iterator[tuple[float, list[_Turn]]]:
    """Yield the probability and the turns of every continuation from a state."""
    if state is None:
        yield 1.0, []
        return
    features = process.features(state)
    chances = policy(process, state)
    mean = chances @ features
    for action, chance in enumerate(chances):
        for o in process.outcomes(state, action):
            turn = _Turn(o.reward, features[action] - mean, value[state], action, state)
            for probability, turns in _from(process, o.state, value):
                yield float(chance) * o.probability * probability, [turn, *turns]
