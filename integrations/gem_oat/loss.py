"""The weights of Oat's loss: the recipe's aggregation, exact over micro-batches and ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gem_core.advantages import dense_ids, identity
from gem_core.advantages.stats import Reduce
from gem_core.errors import GemError
from gem_core.runs.recipe.recipe import AlgorithmConfig
from gem_oat.rows import SegmentRow

FloatArray = npt.NDArray[np.float64]


class LossWeights(NamedTuple):
    """What turns sums over the tokens of a minibatch's rows into means; float64 [rows] each.

    Rows without a trained turn weigh 0.

    Attributes:
        policy: of the recipe's loss aggregation: sum of (weight * sum over the row's tokens).
        turn: of the mean over all trained turns, for what each turn of the row has once.
    """

    policy: FloatArray
    turn: FloatArray


def loss_weights(
    rows: Sequence[SegmentRow], algorithm: AlgorithmConfig, reduce: Reduce = identity
) -> LossWeights:
    """Weights of this rank's rows of one minibatch, in a sum over the rows of all ranks.

    Args:
        rows: with padding; the rows of a segment that are present count as one sequence.
        algorithm: its ``loss_aggregation`` and ``loss_constant``.
        reduce: sum of a float64 array over ranks.
    """
    turns = np.array([len(row.trained) for row in rows])
    trained = (turns > 0).astype(np.float64)
    tokens = np.array([sum(len(t.response) for t in row.trained) for row in rows], dtype=np.float64)
    sequence = dense_ids([row.segment for row in rows])
    sequence_tokens = np.bincount(sequence, tokens)
    own_counts = np.array(
        [tokens.sum(), np.count_nonzero(sequence_tokens), turns.sum()], dtype=np.float64
    )
    all_tokens, all_sequences, all_turns = np.maximum(reduce(own_counts), 1.0)
    if algorithm.loss_aggregation == "token":
        policy = trained / all_tokens
    elif algorithm.loss_aggregation == "sequence":
        policy = trained / (np.maximum(sequence_tokens[sequence], 1.0) * all_sequences)
    else:
        policy = trained / ((algorithm.loss_constant or 1) * all_sequences)
    return LossWeights(policy, turn=trained / all_turns)


class TurnLoss:
    """Replaces Oat's ``masked_aggregator``.

    Oat averages over a row's tokens, then over the rows of a micro-batch, over micro-batches and
    over ranks, so that a token's weight depends on the rows beside it. This gives every row the
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
        self, algorithm: AlgorithmConfig, kinds: Sequence[str], ranks: int, reduce: Reduce
    ) -> None:
        self.algorithm = algorithm
        self.kinds = kinds
        self.ranks = ranks
        self.reduce = reduce
        self.sums: dict[str, float] = {}
        """Weighted sums of this rank so far, by metric."""
        self._micro_batches: Iterator[tuple[Tensor, Tensor]] = iter(())
        self._pending_kinds: Iterator[str] = iter(())

    def plan(self, rows: Sequence[SegmentRow], input_ids: Tensor, micro: int) -> None:
        """Compute the weights of the coming update.

        Args:
            rows: all rows of this rank, padding included.
            input_ids: [rows, tokens].
            micro: rows per micro-batch; divides the rows of a minibatch.
        """
        generator = np.random.RandomState()
        generator.set_state(np.random.get_state())
        micro_batches: list[tuple[Tensor, Tensor]] = []
        for _ in range(self.algorithm.epochs):
            order = generator.permutation(len(rows))
            for minibatch in np.split(order, self.algorithm.minibatches):
                weights = loss_weights([rows[n] for n in minibatch], self.algorithm, self.reduce)
                places = torch.from_numpy(minibatch).split(micro)
                parts = torch.from_numpy(np.stack(weights)).float().split(micro, dim=1)
                micro_batches += zip(places, parts, strict=True)
        self._micro_batches = iter(micro_batches)
        self._rows = rows
        self._input_ids = input_ids
        # What Oat's means divide by: rows per micro-batch * accumulation * ranks.
        self._scale = float(len(rows) // self.algorithm.minibatches * self.ranks)
        self.sums = defaultdict(float)

    def enter(self, input_ids: Tensor) -> Tensor:
        """Begin the next micro-batch; return which rows it has.

        Args:
            input_ids: [rows, tokens] of the micro-batch.

        Raises:
            GemError: it is not the predicted one.
        """
        places, weights = next(self._micro_batches)
        if not torch.equal(self._input_ids[places][:, : input_ids.shape[1]], input_ids):
            raise GemError(
                "Oat's minibatches are not the predicted ones, so the weights of its loss would be "
                "wrong: something else draws from numpy's global generator during an update."
            )
        self._policy, self._turn = weights.to(input_ids.device)
        self._places = places.tolist()
        self._pending_kinds = iter(self.kinds)
        return places

    def __call__(self, values: Tensor, mask: Tensor, axis: int | None = None) -> Tensor:
        """Per row, what Oat's means turn into its share of the loss.

        Args:
            values: [rows, tokens], of the next kind.
            mask: [rows, tokens], true on action tokens.
            axis: Oat's argument; always the tokens.

        Returns:
            [rows].
        """
        kind = next(self._pending_kinds)
        weight = self._policy
        if kind == "value":  # a turn has one state, read at its last prompt token
            mask = self._states(mask)
            weight = self._turn
        shares = (values * mask).sum(1) * weight
        self.sums[f"loss/{kind}"] += float(shares.detach().sum())
        return shares * self._scale

    def _states(self, mask: Tensor) -> Tensor:
        """Like ``mask``, true where the state of each trained turn is read."""
        states = torch.zeros_like(mask)
        for index, place in enumerate(self._places):
            for turn in self._rows[place].trained:
                states[index, turn.action.start] = True
        return states

    def finish(self) -> dict[str, float]:
        """Means over the updates, sums over the ranks.

        Raises:
            GemError: updates are missing.
        """
        if next(self._micro_batches, None) is not None:
            raise GemError(
                "Oat made fewer updates than the recipe asks for: [trainer.oat] or another package "
                "stops its epochs early."
            )
        updates = self.algorithm.epochs * self.algorithm.minibatches
        totals = self.reduce(np.array(list(self.sums.values()))) / updates
        return dict(zip(self.sums, totals.tolist(), strict=True))
