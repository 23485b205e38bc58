"""Reference values of the metrics of an update, computed beside a run by their definitions.

`gem_conform.metric_names` defines them. The episodes are those that a trainer logged; with
one minibatch per epoch nothing else is taken from the trainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gem_core.episodes.data import Episode
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import StepTrace, Unit
from gem_parity.reference_batch import ReferenceBatch, padded
from gem_parity.reference_trainer import ReferenceTrainer


class _Ended:
    """Stands for the machine of an episode that no critic values."""

    def bootstrap_state(self) -> list[int]:
        """Return no state."""
        return []


class ReferenceMetrics(ReferenceTrainer):
    """Trains on episodes, and keeps the metrics of each optimizer step.

    The arguments are those of `ReferenceTrainer`, for recipes without a critic.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.updates: list[dict[str, float]] = []

    def metrics(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Train a step on ``episodes``, one minibatch per epoch; return its metrics by name."""
        self.updates = []
        self.rollout = _rollout_logprobs(episodes)
        units: list[Unit] = [(number, None) for number in range(len(episodes))]
        minibatches = [units] * self.recipe.algorithm.epochs
        machines: Any = [_Ended() for _ in episodes]
        self.step(FrozenBatch(list(episodes), machines), StepTrace({}, {}, minibatches))
        means = {
            name: float(np.mean([update[name] for update in self.updates]))
            for name in self.updates[0]
        }
        return {**means, "lr": self.updates[-1]["lr"]}

    def _update(
        self,
        batch: ReferenceBatch,
        units: list[Unit],
        old: Tensor,
        initial: Tensor | None,
        advantages: Tensor,
    ) -> None:
        algorithm = self.recipe.algorithm
        mask = batch.mask(batch.trained(units)) > 0
        with torch.no_grad():
            logprobs, entropy = self._logprobs(self.model, batch)
        ratio = torch.exp(logprobs - old)
        plain = ratio * advantages
        clipped = ratio.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high) * advantages
        aggregated = self._weights(batch, units)[0]
        update = {
            "loss/policy": -float((torch.minimum(plain, clipped) * aggregated).sum()),
            "clip_ratio": float((clipped < plain)[mask].double().mean()),
            "entropy": float(entropy[mask].mean()),
            "rollout/logprob_difference": float((old - self.rollout).abs()[mask].mean()),
            "lr": self.optimizer.rate(),
        }
        if initial is not None:
            difference = (initial - logprobs)[mask]
            update["kl"] = float((difference.exp() - 1 - difference).mean())
        step = self.optimizer.step

        def noted() -> float:
            update["grad_norm"] = step()
            return update["grad_norm"]

        self.optimizer.step = noted  # type: ignore[method-assign]
        super()._update(batch, units, old, initial, advantages)
        self.optimizer.step = step  # type: ignore[method-assign]
        self.updates.append(update)


def _rollout_logprobs(episodes: Sequence[Episode]) -> Tensor:
    """Return what the engine reported of each token, [rows, tokens], as `ReferenceBatch` has rows.

    Raises:
        ValueError: a sequence has no log-probabilities.
    """
    segments = [segment for episode in episodes for segment in episode.segments]
    if any(segment.logprobs is None for segment in segments):
        raise ValueError("The log-probabilities of a sequence were not recorded.")
    width = padded([segment.token_ids for segment in segments]).shape[1]
    rows = torch.zeros(len(segments), width, dtype=torch.float64)
    for row, segment in zip(rows, segments, strict=True):
        row[: len(segment.token_ids)] = torch.tensor(segment.logprobs, dtype=torch.float64)
    return rows
