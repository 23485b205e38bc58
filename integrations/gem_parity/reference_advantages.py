"""Advantages by their definitions, in plain loops over turns: the reference of the estimators.

Nothing here calls `gem_core.advantages`, so that a fault there cannot be on both sides of a
comparison. Sources: GEM, arXiv 2510.01051 (returns per turn, ReBN); GRPO, arXiv 2402.03300;
Dr. GRPO, arXiv 2503.20783; RLOO, arXiv 2402.14740; GAE, arXiv 1506.02438.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gem_core.episodes.data import Episode
from gem_core.runs.recipe.recipe import AlgorithmConfig


@dataclass
class TrainedTurns:
    """The trained turns of one episode.

    Attributes:
        group: initial state that it shares with others.
        env: id of its environment.
        turns: numbers of the trained turns.
        rewards: of each trained turn.
        values: V before each trained turn; empty without a critic.
        bootstrap: V of the state in which a limit cut the episode, else 0.
    """

    group: int
    env: str
    turns: list[int]
    rewards: list[float]
    values: list[float] = field(default_factory=list)
    bootstrap: float = 0.0

    @classmethod
    def of(cls, episode: Episode) -> TrainedTurns:
        """Return the trained turns of ``episode``."""
        turns = [n for n, turn in enumerate(episode.turns) if not turn.aborted]
        rewards = [episode.turns[n].reward for n in turns]
        return cls(episode.group, episode.env_id, turns, rewards)


def advantages(algorithm: AlgorithmConfig, batch: Sequence[TrainedTurns]) -> list[list[float]]:
    """Return the advantage of each trained turn, per episode.

    Raises:
        KeyError: there is no reference of the estimator.
    """
    return ESTIMATORS[algorithm.estimator](algorithm, batch)


def gae(algorithm: AlgorithmConfig, batch: Sequence[TrainedTurns]) -> list[list[float]]:
    """Return A_t = sum_k (gamma lambda)^k delta_{t+k}, term by term, never whitened."""
    return [_gae_of(algorithm, played) for played in batch]


def _gae_of(algorithm: AlgorithmConfig, played: TrainedTurns) -> list[float]:
    count = len(played.rewards)
    after = [*played.values[1:], played.bootstrap]
    deltas = [
        played.rewards[t] + algorithm.gamma * after[t] - played.values[t] for t in range(count)
    ]
    decay = algorithm.gamma * algorithm.lam
    return [sum(decay ** (k - t) * deltas[k] for k in range(t, count)) for t in range(count)]


def _whitened_gae(algorithm: AlgorithmConfig, batch: Sequence[TrainedTurns]) -> list[list[float]]:
    plain = gae(algorithm, batch)
    if not algorithm.options.get("whiten", False):
        return plain
    return _normalised(plain, ["all"] * len(batch), ddof=0, eps=0.0)


def _reinforce(algorithm: AlgorithmConfig, batch: Sequence[TrainedTurns]) -> list[list[float]]:
    """Return G_t = sum_k gamma^k r_{t+k}, term by term."""
    gamma = algorithm.gamma
    returns = []
    for played in batch:
        count = len(played.rewards)
        returns.append(
            [
                sum(gamma ** (k - t) * played.rewards[k] for k in range(t, count))
                for t in range(count)
            ]
        )
    return returns


def _rebn(algorithm: AlgorithmConfig, batch: Sequence[TrainedTurns]) -> list[list[float]]:
    options = algorithm.options
    pools = [played.env if options.get("per_env", False) else "all" for played in batch]
    return _normalised(
        _reinforce(algorithm, batch),
        pools,
        ddof=options.get("ddof", 0),
        eps=options.get("eps", 0.0),
    )


def _normalised(
    numbers: list[list[float]], pools: Sequence[str], *, ddof: int, eps: float
) -> list[list[float]]:
    """Return (number - mean) / (std + eps) over all turns of the same pool."""
    result = []
    for row, pool in zip(numbers, pools, strict=True):
        members = [n for other, p in zip(numbers, pools, strict=True) if p == pool for n in other]
        mean, std = _moments(members, ddof)
        result.append([(n - mean) / (std + eps) if std > _FLOOR else 0.0 for n in row])
    return result


def _grpo(algorithm: AlgorithmConfig, batch: Sequence[TrainedTurns]) -> list[list[float]]:
    if not algorithm.options.get("std", True):
        return _dr_grpo(algorithm, batch)
    eps = algorithm.options.get("eps", 0.0)

    def advantage(own: float, group: list[float]) -> float:
        mean, std = _moments(group)
        return (own - mean) / (std + eps) if std > _FLOOR else 0.0

    return _by_group(batch, advantage)


def _dr_grpo(algorithm: AlgorithmConfig, batch: Sequence[TrainedTurns]) -> list[list[float]]:
    return _by_group(batch, lambda own, group: own - sum(group) / len(group))


def _rloo(algorithm: AlgorithmConfig, batch: Sequence[TrainedTurns]) -> list[list[float]]:
    def advantage(own: float, group: list[float]) -> float:
        others = len(group) - 1
        return own - (sum(group) - own) / others if others else 0.0

    return _by_group(batch, advantage)


def _by_group(
    batch: Sequence[TrainedTurns], advantage: Callable[[float, list[float]], float]
) -> list[list[float]]:
    """Give each turn the advantage of its episode's return among those of its group."""
    result = []
    for played in batch:
        group = [
            sum(other.rewards) for other in batch if other.group == played.group and other.turns
        ]
        own = advantage(sum(played.rewards), group) if played.turns else 0.0
        result.append([own] * len(played.turns))
    return result


def _moments(numbers: list[float], ddof: int = 0) -> tuple[float, float]:
    """Return mean and standard deviation."""
    count = len(numbers)
    if not count:
        return 0.0, 0.0
    mean = sum(numbers) / count
    squares = sum((n - mean) ** 2 for n in numbers)
    return mean, (squares / max(count - ddof, 1)) ** 0.5


_FLOOR = 1e-8
"""A pool whose standard deviation is at most this is constant: its advantages are 0."""
ESTIMATORS: dict[str, Callable[[AlgorithmConfig, Sequence[TrainedTurns]], list[list[float]]]] = {
    "reinforce": _reinforce,
    "rebn": _rebn,
    "grpo": _grpo,
    "dr_grpo": _dr_grpo,
    "rloo": _rloo,
    "gae": _whitened_gae,
}
