"""What Oat's optimizer steps saw: the metrics of an update that Oat logs in another meaning.

Oat logs the largest norm of the step, shares over rows, and no KL. The log-probabilities of its
passes are read here instead, and put beside the rows that they belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gem_adapters.update_means import Reduce, UpdateMeans
from gem_core.runs.recipe.recipe import AlgorithmConfig
from gem_oat.rows import SegmentRow


class Updates:
    """Collects the passes of a training step's optimizer steps.

    Args:
        algorithm: the recipe's.

    Attributes:
        norms: of each optimizer step, before clipping.
        lr: learning rate of the last one.
    """

    def __init__(self, algorithm: AlgorithmConfig) -> None:
        self.means = UpdateMeans((algorithm.clip_low, algorithm.clip_high))
        self.norms: list[float] = []
        self.lr = 0.0
        self.begin([])

    def begin(self, rows: Sequence[SegmentRow]) -> None:
        """Begin a training step on ``rows``, in the order of Oat's batch."""
        self.rows = rows
        counts = [len(row.turns) for row in rows]
        self.first_turns = np.cumsum([0, *counts]).tolist()
        self.old: list[Tensor] = []
        self.initial: list[Tensor] = []
        self.norms = []

    def add(
        self, places: Tensor, logps: Tensor, entropy: Tensor, advantages: Sequence[float]
    ) -> None:
        """Add a forward pass of an update.

        Args:
            places: which rows it has.
            logps: [rows, tokens - 1], index p is token p + 1.
            entropy: like ``logps``.
            advantages: of each turn of the batch, row by row.
        """
        columns: dict[str, list[Tensor]] = {}
        for index, place in enumerate(places.tolist()):
            for number, turn in enumerate(self.rows[place].turns, start=self.first_turns[place]):
                if turn.excluded:
                    continue
                action = turn.action
                parts = {
                    "logprobs": logps[index, action],
                    "old": self.old[place][action],
                    "entropy": entropy[index, action],
                    "advantages": torch.full((len(turn.response),), float(advantages[number])),
                    "rollout": torch.tensor(turn.logprobs),
                }
                if self.initial:
                    parts["initial"] = self.initial[place][action]
                for name, part in parts.items():
                    columns.setdefault(name, []).append(part.detach().cpu())
        if columns:
            tensors = {name: torch.cat(parts) for name, parts in columns.items()}
            self.means.add(mask=torch.ones(len(tensors["old"])), **tensors)

    def end_update(self, norm: Any, lr: float) -> None:
        """Close an optimizer step, whose gradient has this norm, at this learning rate."""
        self.means.end_update()
        self.norms.append(float(norm))
        self.lr = lr

    def finish(self, reduce: Reduce) -> dict[str, float]:
        """Return the metrics of the training step; a collective call.

        Args:
            reduce: sum of a float64 array over ranks.
        """
        norm = float(np.mean(self.norms)) if self.norms else 0.0
        return {**self.means.finish(reduce), "grad_norm": norm, "lr": self.lr}
