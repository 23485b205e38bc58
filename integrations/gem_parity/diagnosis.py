"""The first quantity of a training step in which a trainer differs from the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gem_parity.recorded import TracedRow

ADVANTAGE = 1e-4
"""Largest difference of an advantage."""
LOGPROB = 1e-3
"""Largest difference of a log-probability of the old policy."""
NORM = 1e-3
"""Largest relative difference of a gradient's norm."""
RATE = 1e-6
"""Largest relative difference of a learning rate."""
PADDING = 8
"""An optimizer has fewer weights than this beside the model's."""


class Update(NamedTuple):
    """One optimizer step.

    Attributes:
        rate: learning rate.
        norm: norm of the gradient, after clipping.
        size: number of trained weights.
    """

    rate: float
    norm: float
    size: int


class OptimizerLog:
    """A context that notes every step of every torch optimizer of this process."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, Update]] = []

    def __enter__(self) -> OptimizerLog:
        self._handle = register_optimizer_step_pre_hook(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()

    def take(self, size: int) -> list[Update]:
        """Return the steps since the last call, of the optimizer of ``size`` weights.

        An optimizer may have a few weights more, for padding. DeepSpeed steps a torch optimizer
        once for each group of weights: those are one step.
        """
        steps, self._steps = self._steps, []
        for owner in dict.fromkeys(owner for owner, _ in steps):
            parts = [update for number, update in steps if number == owner]
            together = list(accumulate(part.size for part in parts))
            groups = next((n for n, total in enumerate(together, 1) if total >= size), 0)
            if groups and together[groups - 1] - size < PADDING:
                return [_one(parts[n : n + groups]) for n in range(0, len(parts), groups)]
        return []

    def _note(self, optimizer: Any, *_: object) -> None:
        groups = optimizer.param_groups
        trained = [p for group in groups for p in group["params"] if p.grad is not None]
        squares = sum(float(_whole(p.grad).double().square().sum()) for p in trained)
        size = sum(p.numel() for p in trained)
        self._steps.append((id(optimizer), Update(float(groups[0]["lr"]), squares**0.5, size)))


def _one(parts: Sequence[Update]) -> Update:
    """Return the steps of groups of weights as one."""
    norm = sum(part.norm**2 for part in parts) ** 0.5
    return Update(parts[0].rate, norm, sum(part.size for part in parts))


def _whole(gradient: Any) -> torch.Tensor:
    """Return a gradient whole, where the trainer divides it over ranks."""
    whole: torch.Tensor = gradient.detach()
    return whole.full_tensor() if hasattr(whole, "full_tensor") else whole


def first_difference(
    rows: Sequence[TracedRow],
    expected: Sequence[TracedRow],
    updates: Sequence[Update],
    wanted: Sequence[Update],
) -> str | None:
    """Return the first quantity that differs with both values, None if all are equal.

    The order: tokens and masks, advantages, old log-probabilities, then norm and rate of each
    optimizer step. What the trainer does not report is left out, see `not_compared`.

    Args:
        rows: the sequences of the trainer; those without a trained token are ignored.
        expected: the reference's.
        updates: the optimizer steps of the trainer.
        wanted: the reference's.
    """
    differences = [*(_of_rows(rows, expected) if rows else ()), *_of_updates(updates, wanted)]
    return next(iter(differences), None)


def not_compared(rows: Sequence[TracedRow], updates: Sequence[Update]) -> list[str]:
    """Return the quantities that a trainer does not report."""
    names = []
    if not rows:
        names += ["masks", "advantages"]
    if not any(row.logprobs is not None for row in rows):
        names.append("old log-probabilities")
    names.append("loss")  # each trainer divides it in its own way; its gradient's norm is compared
    if not updates:
        names += ["gradient norm", "learning rate"]
    return names


def _of_rows(rows: Sequence[TracedRow], expected: Sequence[TracedRow]) -> Iterator[str]:
    """Yield what differs in the sequences, quantity by quantity."""
    theirs = [row for row in expected if any(row.mask)]
    mine = [row for row in rows if any(row.mask)]
    by_ids = {tuple(row.token_ids): row for row in mine}
    pairs = [(_same(row, by_ids), row) for row in theirs]
    missing = sum(found is None for found, _ in pairs)
    if missing or len(mine) < len(theirs):
        yield f"trained sequences: {missing} of the reference's {len(theirs)} are missing"
        return
    if len(by_ids) > len(theirs):
        yield f"trained sequences: {len(by_ids)}, reference {len(theirs)}"
        return
    names = {"mask": 0.0, "advantages": ADVANTAGE, "logprobs": LOGPROB}
    for quantity, bound in names.items():
        for number, (row, wanted) in enumerate(pairs):
            if row is not None:
                yield from _of_row(quantity, bound, number, row, wanted)


def _same(wanted: TracedRow, rows: dict[tuple[int, ...], TracedRow]) -> TracedRow | None:
    """Return the row with the tokens of ``wanted``.

    It may have a state to value at its end, or end with its last trained token.
    """
    ids = tuple(wanted.token_ids)
    others = (row for key, row in rows.items() if all(map(int.__eq__, key, ids)))
    return rows.get(ids) or next(others, None)


_WORDS = {"mask": "mask", "advantages": "advantage", "logprobs": "old log-probability"}


def _of_row(
    quantity: str, bound: float, number: int, row: TracedRow, wanted: TracedRow
) -> Iterator[str]:
    found, right = getattr(row, quantity), getattr(wanted, quantity)
    if found is None:
        return
    trained = np.asarray(wanted.mask) > 0
    counted = np.ones(len(trained), bool) if quantity == "mask" else trained
    length = len(trained)
    found = np.pad(np.asarray(found, float), (0, max(0, length - len(found))))
    apart = np.abs(found[:length] - np.asarray(right, float))
    bad = np.flatnonzero(counted & ~(apart <= bound))  # not "> bound": a NaN is a difference
    if len(bad):
        place = int(bad[0])
        yield (
            f"{_WORDS[quantity]} of token {place} in sequence {number}: "
            f"{float(found[place]):.6g}, reference {float(right[place]):.6g} ({len(bad)} tokens)"
        )


def _of_updates(updates: Sequence[Update], wanted: Sequence[Update]) -> Iterator[str]:
    """Yield what differs in the optimizer steps."""
    for number, (found, right) in enumerate(zip(updates, wanted, strict=False), start=1):
        if not abs(found.norm - right.norm) <= NORM * right.norm + 1e-9:
            yield (
                f"gradient norm (after clipping) of update {number}: {found.norm:.6g}, reference "
                f"{right.norm:.6g}"
            )
        if not abs(found.rate - right.rate) <= RATE * right.rate + 1e-15:
            yield (
                f"learning rate of update {number}: {found.rate:.6g}, reference {right.rate:.6g}"
            )
