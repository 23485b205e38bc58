"""What differs between two runs, by more than rounding explains, while their tokens are equal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gem_compare.lockstep.traces import Trace, actions
from gem_core.episodes.data import Episode

LOGPROBS = "log-probabilities"
"""The quantity that shows the weights: log-probabilities of the sampled tokens."""
REWARDS = "rewards"
"""The reward of every turn."""
ROUNDING = 1e-4
"""Difference of log-probabilities that float32 may have after a few updates."""
GROWTH = 20.0
"""Training amplifies rounding: by how much more than in any step before it may differ in a step."""
BOUNDS: dict[str, tuple[float, float, float]] = {
    "advantage/mean": (1e-6, 0.0, 0.0),
    "advantage/std": (1e-6, 0.0, 0.0),
    "advantage/cubed": (1e-6, 0.0, 0.0),
    "lr": (0.0, 1e-9, 0.0),
    "loss/policy": (1e-5, 0.0, 1.0),
    "grad_norm": (1e-6, 1e-3, 10.0),
    "entropy": (1e-4, 0.0, 1.0),
    "clip_ratio": (0.0, 0.0, 0.1),
}
"""Metric -> absolute difference, relative difference, and share of the drift of the
log-probabilities (relative where there is a relative difference) up to which it counts as equal.
RL2 and verl have rewards in float32. Of ``clip_ratio``, one token more may differ: its ratio may be
on either side of the clip's edge."""


@dataclass(frozen=True)
class Difference:
    """The differences of one quantity over the steps in which two runs have equal tokens.

    Attributes:
        quantity: `LOGPROBS`, `REWARDS`, or a metric of `BOUNDS`.
        largest: the largest absolute difference; ``None`` where a run does not have the quantity.
        at: the step of the largest one.
        begins: the first step at which it is beyond its bound; ``None`` if it never is.
        values: both values at the step where it begins; for `LOGPROBS`, the difference and 0.
    """

    quantity: str
    largest: float | None
    at: int | None
    begins: int | None
    values: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def differences(one: Trace, other: Trace, steps: Iterable[int]) -> list[Difference]:
    """Return the differences of every quantity.

    Args:
        one: a run.
        other: another run of the same recipe.
        steps: the steps in which both have equal tokens.
    """
    drift = {step: drifts(one, other, step) for step in steps}
    found = [_logprobs(drift), _rewards(one, other, list(drift))]
    return [*found, *(_metric(name, one, other, drift) for name in BOUNDS)]


def rounding(earlier: Iterable[float | None]) -> float:
    """Return the difference of log-probabilities that rounding explains in a step.

    Args:
        earlier: the differences of the steps before.

    >>> rounding([]), rounding([1e-6]), rounding([1e-6, 1e-3])
    (0.0001, 0.0001, 0.02)
    """
    return max([ROUNDING, *(GROWTH * size for size in earlier if size is not None)])


def drifts(one: Trace, other: Trace, step: int) -> float | None:
    """Return the largest difference of log-probabilities of the tokens of a step.

    Returns:
        ``None`` where an engine reported none. Actions that differ are left out.
    """
    largest = 0.0
    batch = other.batches[step]
    for index, episode in one.batches[step].items():
        for mine, theirs in zip(actions(episode), actions(batch[index]), strict=False):
            if mine[:3] != theirs[:3]:
                break
            if mine.logprobs is None or theirs.logprobs is None:
                return None
            largest = max(largest, _apart(mine.logprobs, theirs.logprobs))
    return largest


def _apart(one: Sequence[float], other: Sequence[float]) -> float:
    return max((abs(a - b) for a, b in zip(one, other, strict=True)), default=0.0)


def _logprobs(drift: Mapping[int, float | None]) -> Difference:
    known = {step: size for step, size in drift.items() if size is not None}
    sizes = list(known.values())
    jumps = [step for place, step in enumerate(known) if not known[step] <= rounding(sizes[:place])]
    begins = jumps[0] if jumps else None
    return _difference(LOGPROBS, known, begins, None if begins is None else (known[begins], 0.0))


def _rewards(one: Trace, other: Trace, steps: Sequence[int]) -> Difference:
    sizes = {}
    for step in steps:
        mine = _turn_rewards(one.batches[step])
        theirs = _turn_rewards(other.batches[step])
        keys = mine.keys() | theirs.keys()
        sizes[step] = max((abs(mine.get(k, 0.0) - theirs.get(k, 0.0)) for k in keys), default=0.0)
    begins = next((step for step in steps if sizes[step] > 0), None)
    values = None
    if begins is not None:
        values = (_total(one.batches[begins]), _total(other.batches[begins]))
    return _difference(REWARDS, sizes, begins, values)


def _turn_rewards(batch: Mapping[int, Episode]) -> dict[tuple[int, int], float]:
    return {
        (index, turn): reward
        for index, episode in batch.items()
        for turn, reward in enumerate(episode.rewards)
    }


def _total(batch: Mapping[int, Episode]) -> float:
    return sum(episode.total_reward for episode in batch.values())


def _metric(name: str, one: Trace, other: Trace, drift: Mapping[int, float | None]) -> Difference:
    pairs = {
        step: (float(one.metrics[step][name]), float(other.metrics[step][name]))
        for step in drift
        if name in one.metrics.get(step, {}) and name in other.metrics.get(step, {})
    }
    sizes = {step: abs(a - b) for step, (a, b) in pairs.items()}
    bounds = {
        step: _bound(name, pair, drift[step] or 0.0, one.batches[step])
        for step, pair in pairs.items()
    }
    # "not <=": a NaN is a difference
    begins = next((step for step in pairs if not sizes[step] <= bounds[step]), None)
    return _difference(name, sizes, begins, None if begins is None else pairs[begins])


def _bound(
    name: str, pair: tuple[float, float], drift: float, batch: Mapping[int, Episode]
) -> float:
    absolute, relative, share = BOUNDS[name]
    if name == "clip_ratio":
        absolute = 1 / max(1, sum(episode.action_tokens for episode in batch.values()))
    if relative:
        return absolute + (relative + share * drift) * max(abs(pair[0]), abs(pair[1]))
    return absolute + share * drift


def _difference(
    name: str, sizes: Mapping[int, float], begins: int | None, values: tuple[float, float] | None
) -> Difference:
    if not sizes:
        return Difference(name, None, None, None, None)
    at = max(sizes, key=lambda step: (math.isnan(sizes[step]), sizes[step]))
    return Difference(name, sizes[at], at, begins, values)
