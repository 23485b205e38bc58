"""Compare a replay with the reference: the figures of the parity table, and their bounds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from gem_parity.bounds import BOUNDS
from gem_parity.reference import compare
from gem_parity.replay import Replay, Row


@dataclass
class Measure:
    """The comparison of one trainer, with one estimator, on one frozen batch.

    Attributes:
        rows: number of trained sequences.
        turns: number of trained turns.
        ids: whether every token id and every mask entry is equal.
        advantage: largest absolute error of an advantage.
        loss: error of the loss, relative to the reference (absolute below 0.01).
        cosine: cosine between the gradients.
        norm: norm of the gradient divided by the reference's, minus 1.
        faults: descriptions of what is out of bounds; empty = equal.
    """

    rows: int
    turns: int
    ids: bool
    advantage: float
    loss: float
    cosine: float
    norm: float
    faults: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def measure(replayed: Replay, expected: Replay) -> Measure:
    """Compare a replay with the reference; ``faults`` lists every difference out of bounds."""
    rows = sorted((row for row in replayed.rows if any(row.loss_mask)), key=_order)
    expected_rows = sorted(expected.rows, key=_order)
    same = len(rows) == len(expected_rows) and all(map(_same_ids, rows, expected_rows))
    advantage = _largest_error(rows, expected_rows) if same else float("inf")
    cosine, ratio = compare(replayed.gradients, expected.gradients)
    loss = abs(replayed.loss - expected.loss) / max(abs(expected.loss), 0.01)
    turns = sum(_runs(row.loss_mask) for row in expected_rows)
    result = Measure(len(expected_rows), turns, same, advantage, loss, cosine, ratio - 1.0)
    result.faults = _faults(result, len(rows))
    return result


def _largest_error(rows: list[Row], expected: list[Row]) -> float:
    """Return the largest absolute error of an advantage; NaN where there are no rows."""
    errors = [
        float(np.abs(row.advantages - other.advantages).max())
        for row, other in zip(rows, expected, strict=True)
    ]
    return max(errors, default=float("nan"))


def _faults(m: Measure, rows: int) -> list[str]:
    checks = {
        f"{rows} rows or other token ids or masks than the reference's {m.rows}": m.ids,
        f"advantages differ by {m.advantage:.2e}": m.advantage <= BOUNDS["advantage"],
        f"loss differs by {m.loss:.2e}": m.loss <= BOUNDS["loss"],
        f"gradient cosine {m.cosine:.6f}": m.cosine >= BOUNDS["cosine"],
        f"gradient norm off by {m.norm:+.2%}": abs(m.norm) <= BOUNDS["norm"],
    }
    return [text for text, holds in checks.items() if not holds]


def _order(row: Row) -> tuple[int, list[int]]:
    return row.episode, row.token_ids


def _same_ids(a: Row, b: Row) -> bool:
    return (a.episode, a.token_ids, a.loss_mask) == (b.episode, b.token_ids, b.loss_mask)


def _runs(mask: list[int]) -> int:
    return sum(now and not before for before, now in zip([0, *mask], mask, strict=False))
