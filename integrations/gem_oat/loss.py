"""The weights of Oat's loss: the recipe's aggregation, exact over micro-batches and ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gem_core.errors import GemError
from gem_core.training.recipe import AlgorithmConfig
from gem_oat.rows import LossWeights, Row, loss_weights


class TurnLoss:
    """Replaces Oat's ``masked_aggregator``.

    Oat averages over a row's tokens, then over the rows of a micro-batch, over micro-batches and
    over ranks, so that a token's weight depends on who is beside it. This gives every row the
    factor that turns the chain into the recipe's one weighted sum over the whole minibatch. For
    that it must know the minibatches ahead: it draws Oat's permutations from a copy of the state of
    the generator that Oat will use, and compares tokens at every micro-batch.

    Args:
        algorithm: aggregation, epochs, minibatches.
        kinds: what Oat aggregates per micro-batch, in its order: policy, kl, value.
        ranks: number of learners.
        reduce: sum of a float64 array over them.
    """

    def __init__(
        self, algorithm: AlgorithmConfig, kinds: Sequence[str], ranks: int, reduce: Any
    ) -> None:
        self.algorithm, self.kinds, self.ranks, self.reduce = algorithm, kinds, ranks, reduce

    def plan(self, rows: Sequence[Row], input_ids: Tensor, micro: int) -> None:
        """Weigh the coming update.

        Args:
            rows: all rows of this rank, padding included.
            input_ids: [rows, tokens].
            micro: rows per micro-batch; divides the rows of a minibatch.
        """
        state, queue = np.random.RandomState(), []
        state.set_state(np.random.get_state())
        for _ in range(self.algorithm.epochs):
            for part in np.split(state.permutation(len(rows)), self.algorithm.minibatches):
                found = loss_weights([rows[n] for n in part], self.algorithm, self.reduce)
                weights = torch.from_numpy(np.stack(found)).float().split(micro, dim=1)
                queue += zip(torch.from_numpy(part).split(micro), weights, strict=True)
        self._scale = float(len(part) * self.ranks)  # rows per micro * accumulation * ranks
        self._queue, self._ids, self.sums = iter(queue), input_ids, defaultdict(float)

    def enter(self, input_ids: Tensor, entropy: Tensor | None) -> None:
        """Begin the next micro-batch. Raises GemError if it is not the predicted one."""
        rows, weights = next(self._queue)
        if not torch.equal(self._ids[rows][:, : input_ids.shape[1]], input_ids):
            raise GemError("Oat's minibatches are not the predicted ones; the weights are wrong.")
        self._now = LossWeights(*weights.to(input_ids.device))
        self._pending = iter(self.kinds)
        self._entropy = entropy

    def __call__(self, values: Tensor, mask: Tensor, axis: int | None = None) -> Tensor:
        """Per row, what Oat's means turn into its share of the loss; ``values`` [rows, tokens]."""
        kind, weight = next(self._pending), self._now.policy
        if kind == "value":  # a turn has one state, read at its last prompt token
            mask, weight = mask & (mask.cumsum(1) == 1), self._now.turn
        out = (values * mask).sum(1) * weight
        self.sums[f"loss/{kind}"] += float(out.detach().sum())
        if kind == "policy" and self._entropy is not None:
            self.sums["entropy"] += float(((self._entropy * mask).sum(1) * self._now.token).sum())
        return out * self._scale

    def finish(self) -> dict[str, float]:
        """Means over the updates, sums over the ranks. Raises GemError if updates are missing."""
        if next(self._queue, None) is not None:
            raise GemError("Oat made fewer updates than the recipe asks for.")
        updates = self.algorithm.epochs * self.algorithm.minibatches
        sums = self.reduce(np.array(list(self.sums.values()))) / updates
        return dict(zip(self.sums, sums.tolist(), strict=True))
