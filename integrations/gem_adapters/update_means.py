"""Means over the tokens that a training step's optimizer steps saw, by one definition.

Trainers log such figures in their own ways: over rows, before or after an update, with another
estimator of the KL. An adapter hands the tensors of the trainer's loss to `UpdateMeans` instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

TOKENS = "tokens"
"""Name of the number of tokens in what `token_sums` returns."""
Reduce = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]


def token_sums(
    clip: Sequence[float],
    *,
    mask: Any,
    logprobs: Any,
    old: Any,
    advantages: Any,
    entropy: Any = None,
    initial: Any = None,
    rollout: Any = None,
) -> dict[str, float]:
    """Return sums over the action tokens of one forward pass, see `gem_conform.metric_names`.

    All tensors are [rows, tokens] and of one shape; they need not be finite outside the mask.

    Args:
        clip: ``algorithm.clip_low`` and ``algorithm.clip_high``.
        mask: not 0 on action tokens.
        logprobs: of the policy.
        old: of the policy at the beginning of the training step.
        advantages: their sign decides on which side the clip acts.
        entropy: of the policy's distribution.
        initial: log-probabilities of the initial model.
        rollout: those that the engine reported.

    Returns:
        By metric name, and the number of tokens as `TOKENS`.
    """
    trained = mask.bool()
    new = logprobs.detach()[trained].double()
    before = old.detach()[trained].double()
    ratio = (new - before).exp()
    gains = advantages[trained]
    below = (ratio < 1 - clip[0]) & (gains < 0)
    above = (ratio > 1 + clip[1]) & (gains > 0)
    sums = {TOKENS: float(trained.sum()), "clip_ratio": float((below | above).sum())}
    if entropy is not None:
        sums["entropy"] = float(entropy.detach()[trained].double().sum())
    if initial is not None:
        difference = initial.detach()[trained].double() - new
        sums["kl"] = float((difference.exp() - 1 - difference).sum())
    if rollout is not None:
        sampled = rollout[trained].double().to(before.device)
        sums["rollout/logprob_difference"] = float((before - sampled).abs().sum())
    return sums


class UpdateMeans:
    """Means over the action tokens of each optimizer step, averaged over those of a training step.

    Args:
        clip: ``algorithm.clip_low`` and ``algorithm.clip_high``.
    """

    def __init__(self, clip: Sequence[float]) -> None:
        self.clip = clip
        self._updates: list[dict[str, float]] = []
        self._current: dict[str, float] = defaultdict(float)

    def add(self, **tensors: Any) -> None:
        """Add the tokens of a forward pass; the arguments are those of `token_sums`."""
        for name, number in token_sums(self.clip, **tensors).items():
            self._current[name] += number

    def end_update(self) -> None:
        """Close an optimizer step."""
        if self._current:
            self._updates.append(dict(self._current))
        self._current.clear()

    def finish(self, reduce: Reduce | None = None) -> dict[str, float]:
        """Return the means of the training step by metric name, and begin the next one.

        Args:
            reduce: the sum of a float64 array over ranks; None for one rank.
        """
        self.end_update()
        updates = self._updates
        self._updates = []
        if not updates:
            return {}
        names = list(updates[0])
        table = np.array([[update[name] for name in names] for update in updates])
        if reduce is not None:
            table = reduce(table)
        counts = np.maximum(table[:, [names.index(TOKENS)]], 1.0)
        means = (table / counts).mean(axis=0).tolist()
        return {name: mean for name, mean in zip(names, means, strict=True) if name != TOKENS}
