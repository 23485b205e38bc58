"""Small decision processes whose trajectories can be listed, under softmax policies.

A process says which actions a state has, what each may lead to, and the features of the actions.
The policy is ``pi(a | s) = softmax_a(features(s)[a] @ theta)``, with the few parameters ``theta``
shared by all states. Every process ends by itself: the state holds what has to be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
State = Hashable


class Outcome(NamedTuple):
    """What an action may lead to.

    Attributes:
        probability: of this outcome.
        reward: of the turn.
        state: the next state; None ends the episode.
    """

    probability: float
    reward: float
    state: State | None


class Task(NamedTuple):
    """An initial state: episodes that share one are a group.

    Attributes:
        weight: the probability of the task.
        state: its first state.
    """

    weight: float
    state: State


@dataclass(frozen=True)
class Process:
    """A decision process and the policy under which it is measured.

    Attributes:
        name: its name.
        about: what it has that others do not, for the page.
        tasks: initial states; the weights sum to 1.
        features: state -> float64 [actions, K].
        outcomes: state, action -> what may happen; the probabilities sum to 1.
        theta: float64 [K], the parameters of the policy.
    """

    name: str
    about: str
    tasks: tuple[Task, ...]
    features: Callable[[State], FloatArray]
    outcomes: Callable[[State, int], list[Outcome]]
    theta: FloatArray


def _bandit() -> Process:
    """One turn, three actions."""
    return Process(
        "bandit",
        "one turn, three actions",
        (Task(1.0, "only"),),
        lambda state: np.eye(3),
        lambda state, action: [Outcome(1.0, (1.0, 0.5, 0.0)[action], None)],
        np.array([-0.5, 0.0, 0.5]),
    )


def _retry() -> Process:
    """Stop now for 1, or take another turn for 0.5 and then 0.6 or 0."""

    def outcomes(state: State, action: int) -> list[Outcome]:
        if state == "first":
            return [Outcome(1.0, 1.0, None) if action == 0 else Outcome(1.0, 0.5, "second")]
        return [Outcome(1.0, (0.6, 0.0)[action], None)]

    return Process(
        "retry",
        "stop for 1, or a second turn with a reward on the way; the policy decides the length",
        (Task(1.0, "first"),),
        lambda state: np.eye(4)[:2] if state == "first" else np.eye(4)[2:],
        outcomes,
        np.array([0.2, 0.0, 0.0, 0.4]),
    )


def _random_stop() -> Process:
    """The environment ends the episode by chance; every turn is rewarded."""

    def outcomes(state: State, action: int) -> list[Outcome]:
        assert isinstance(state, int)
        reward = (1.0, 0.2)[action]
        if state == 4:
            return [Outcome(1.0, reward, None)]
        return [Outcome(0.3, reward, None), Outcome(0.7, reward, state + 1)]

    return Process(
        "random stop",
        "rewards every turn; the environment ends it by chance, at the latest after 5 turns",
        (Task(1.0, 0),),
        lambda state: np.array([[1.0, 0.25 * float(str(state))], [0.0, 0.0]]),
        outcomes,
        np.array([0.0, -0.5]),
    )


def _tools() -> Process:
    """An agent that may call a good or a bad tool before it answers."""

    def outcomes(state: State, action: int) -> list[Outcome]:
        assert isinstance(state, tuple)
        turn, useful = state
        if action == 0 or turn == 4:  # answers; the last turn is an answer whatever is said
            chance = (0.2, 0.5, 0.7, 0.8)[useful]
            return [Outcome(chance, 1.0, None), Outcome(1.0 - chance, 0.0, None)]
        if action == 1:
            return [Outcome(1.0, 0.3, (turn + 1, min(useful + 1, 3)))]
        return [Outcome(1.0, 0.0, (turn + 1, useful))]

    def features(state: State) -> FloatArray:
        assert isinstance(state, tuple)
        late = state[0] / 2.0
        return np.array([[1.0, late, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])

    return Process(
        "tools",
        "calls tools, good ones for 0.3 each, then answers for 0 or 1; the policy decides the "
        "length, up to 5 turns",
        (Task(1.0, (0, 0)),),
        features,
        outcomes,
        np.array([0.0, 0.3, 0.2]),
    )


def _search() -> Process:
    """Guess one of eight: halve, guess or waste a turn; rewarded at the end only."""

    def outcomes(state: State, action: int) -> list[Outcome]:
        assert isinstance(state, tuple)
        turn, left = state
        over = turn == 4
        if action == 0:
            hit = 1.0 / left
            miss = None if over or left == 1 else (turn + 1, left - 1)
            return [Outcome(hit, 1.0, None), *([Outcome(1 - hit, 0.0, miss)] if left > 1 else [])]
        after = (turn + 1, max(left // 2, 1) if action == 1 else left)
        return [Outcome(1.0, 0.0, None if over else after)]

    def features(state: State) -> FloatArray:
        assert isinstance(state, tuple)
        few = 1.0 / state[1]
        return np.array([[1.0, few, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])

    return Process(
        "search",
        "guesses one of 8 in 5 turns by halving; one reward, at the end; uneven lengths",
        (Task(1.0, (0, 8)),),
        features,
        outcomes,
        np.array([-0.5, 1.0, 0.3]),
    )


def _two_tasks() -> Process:
    """Two tasks, one of which pays ten times as much; what helps one hurts the other a little."""

    def outcomes(state: State, action: int) -> list[Outcome]:
        assert isinstance(state, tuple)
        task, turn = state
        good = (0.8, 0.3)[action] if task == 0 else (0.2, 0.6)[action]
        scale = 1.0 if task == 0 else 10.0
        after = None if turn == 1 else (task, turn + 1)
        return [Outcome(good, scale, after), Outcome(1.0 - good, 0.0, after)]

    def features(state: State) -> FloatArray:
        assert isinstance(state, tuple)
        own = np.eye(2)[state[0]]
        return np.array([[1.0, *own], [0.0, 0.0, 0.0]])

    return Process(
        "two tasks",
        "two tasks of two turns, one with ten times the rewards",
        (Task(0.5, (0, 0)), Task(0.5, (1, 0))),
        features,
        outcomes,
        np.array([0.0, 0.2, -0.2]),
    )


def _long() -> Process:
    """Eight turns, each rewarded for its own action."""

    def outcomes(state: State, action: int) -> list[Outcome]:
        assert isinstance(state, int)
        return [Outcome(1.0, float(action == 0), None if state == 7 else state + 1)]

    return Process(
        "long",
        "8 turns, each rewarded for its own action",
        (Task(1.0, 0),),
        lambda state: np.vstack([np.eye(4)[int(str(state)) // 2], np.zeros(4)]),
        outcomes,
        np.array([-0.5, 0.0, 0.3, 0.6]),
    )


PROCESSES: dict[str, Process] = {
    process.name: process
    for process in (
        _bandit(),
        _retry(),
        _random_stop(),
        _tools(),
        _search(),
        _two_tasks(),
        _long(),
    )
}
"""Name -> process, in the order of the page."""
