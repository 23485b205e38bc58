"""The weights of Oat's loss: the recipe's aggregation, exact over micro-batches and ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from gem_core.errors import GemError
from gem_core.recipe import AlgorithmConfig
from gem_oat.rollout import Row


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
        self.sums: dict[str, float] = {}

    def plan(
        self, rows: Sequence[Row], sizes: np.ndarray, input_ids: torch.Tensor, micro: int
    ) -> None:
        """Weigh the coming update.

        Args:
            rows: all rows of this rank, padding included.
            sizes: [rows], response tokens.
            input_ids: [rows, tokens].
            micro: rows per micro-batch; divides the rows of a minibatch.
        """
        state = np.random.RandomState()
        state.set_state(np.random.get_state())
        orders = [state.permutation(len(rows)) for _ in range(self.algorithm.epochs)]
        parts = [p for order in orders for p in np.split(order, self.algorithm.minibatches)]
        self._scale = float(len(parts[0]) * self.ranks)  # rows per micro * accumulation * ranks
        self._ids, self.sums = input_ids, defaultdict(float)
        self._queue = self._micro_batches(parts, self._weights(rows, sizes, parts), micro)

    def enter(self, input_ids: torch.Tensor, entropy: torch.Tensor | None) -> None:
        """Begin the next micro-batch. Raises GemError if it is not the predicted one."""
        rows, self._now = next(self._queue)
        if not torch.equal(self._ids[rows][:, : input_ids.shape[1]], input_ids):
            raise GemError("Oat's minibatches are not the predicted ones; the weights are wrong.")
        self._pending = iter(self.kinds)
        self._entropy = input_ids.new_zeros(1, 1) if entropy is None else entropy.detach()

    def __call__(
        self, values: torch.Tensor, mask: torch.Tensor, axis: int | None = None
    ) -> torch.Tensor:
        """Per row, what Oat's means turn into its share of the loss; ``values`` [rows, tokens]."""
        kind = next(self._pending)
        policy, token, value = self._now.to(values.device)
        if kind == "value":  # a turn has one state, read at its last prompt token
            mask = mask & (mask.cumsum(1) == 1)
        out = (values * mask).sum(1) * (value if kind == "value" else policy)
        self.sums[f"loss/{kind}"] += float(out.detach().sum())
        if kind == "policy":
            self.sums["entropy"] += float(((self._entropy * mask).sum(1) * token).sum())
        return out * self._scale

    def finish(self) -> dict[str, float]:
        """Means over the updates, sums over the ranks. Raises GemError if updates are missing."""
        if next(self._queue, None) is not None:
            raise GemError("Oat made fewer updates than the recipe asks for.")
        updates = self.algorithm.epochs * self.algorithm.minibatches
        sums = self.reduce(np.array(list(self.sums.values()))) / updates
        return dict(zip(self.sums, sums.tolist(), strict=True))

    def _weights(
        self, rows: Sequence[Row], sizes: np.ndarray, parts: list[np.ndarray]
    ) -> list[np.ndarray]:
        """[3, rows] per minibatch: weight in the policy loss, in a token mean, of the value."""
        trained = np.array([not row.excluded for row in rows], dtype=np.float64)
        names = [(row.episode, row.segment) for row in rows]
        numbers = {name: n for n, name in enumerate(dict.fromkeys(names))}
        sequence, tokens = np.array([numbers[name] for name in names]), sizes * trained
        lengths = [np.bincount(sequence[p], tokens[p], len(numbers)) for p in parts]
        totals = [
            [tokens[p].sum(), float(np.count_nonzero(length)), trained[p].sum()]
            for p, length in zip(parts, lengths, strict=True)
        ]
        weights = []
        everywhere = np.maximum(self.reduce(np.array(totals)), 1.0)
        for part, length, (count, sequences, turns) in zip(parts, lengths, everywhere, strict=True):
            divisor = {
                "token": count,
                "sequence": np.maximum(length[sequence[part]], 1.0) * sequences,
                "constant": (self.algorithm.loss_constant or 1) * sequences,
            }[self.algorithm.loss_aggregation]
            own = trained[part]
            weights.append(np.stack([own / divisor, own / count, own / turns]))
        return weights

    @staticmethod
    def _micro_batches(
        parts: list[np.ndarray], weights: list[np.ndarray], micro: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for part, weight in zip(parts, weights, strict=True):
            for at in range(0, len(part), micro):
                own = torch.from_numpy(weight[:, at : at + micro]).float()
                yield torch.from_numpy(part[at : at + micro]), own
