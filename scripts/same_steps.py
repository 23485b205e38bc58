"""For how many steps the runs of several trainers with one seed are the same run.

Sampling is keyed by seed, task and turn, so that two trainers that do the same thing draw the same
tokens until rounding flips the first of them. The whole batch is compared by the figures that a
recorded run keeps of every step; token by token compare those runs that keep every episode
(`gem_compare.lockstep`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_compare.results import CellResult

BATCH = ("success/mean", "reward/mean", "turns/mean", "tokens/action")
"""Figures of the whole batch of a step, in five digits, that depend on the drawn tokens only."""
_Rows = Mapping[int, Mapping[str, Any]]


@dataclass(frozen=True)
class SameSteps:
    """How long the trainers' runs of one experiment are the same.

    Attributes:
        trainers: names of the trainers that are compared, in alphabetical order.
        same: number of first steps in which every figure of `BATCH` is equal in all of them.
        steps: number of steps of the runs.
        grad_norm: largest relative difference of the gradient norm in the first ``same`` steps.
        entropy: likewise, of the entropy.
        gap: largest difference of the success after training.
    """

    trainers: tuple[str, ...]
    same: int
    steps: int
    grad_norm: float
    entropy: float
    gap: float


def same_steps(cells: Iterable[CellResult]) -> SameSteps:
    """Compare finished runs of one experiment (baseline, algorithm, seed) in several trainers.

    Raises:
        ValueError: there are fewer than two runs, they are of several experiments, or two are of
            the same trainer.
    """
    known = sorted(cells, key=lambda cell: cell.trainer)
    trainers = tuple(cell.trainer for cell in known)
    experiments = {(cell.baseline, cell.algorithm, cell.seed) for cell in known}
    if len(known) < 2 or len(experiments) != 1 or len(set(trainers)) != len(trainers):
        raise ValueError(
            "Compare two finished runs or more of one experiment, each of another trainer; "
            f"these are {', '.join(cell.name for cell in known) or 'none'}."
        )
    runs: list[_Rows] = [{row["step"]: row for row in cell.run.metrics()} for cell in known]
    steps = max(max(rows, default=0) for rows in runs)
    same = next((step for step in range(steps) if not _equal(runs, step + 1)), steps)
    compared = range(1, same + 1)
    after = [cell.result["after"]["success/mean"] for cell in known if cell.result]
    return SameSteps(
        trainers=trainers,
        same=same,
        steps=steps,
        grad_norm=_largest(runs, compared, "grad_norm"),
        entropy=_largest(runs, compared, "entropy"),
        gap=max(after) - min(after),
    )


def _equal(runs: Sequence[_Rows], step: int) -> bool:
    """Return whether every run has the step, with the same figures."""
    if any(step not in rows for rows in runs):
        return False
    return len({tuple(rows[step].get(name) for name in BATCH) for rows in runs}) == 1


def _largest(runs: Sequence[_Rows], steps: Iterable[int], name: str) -> float:
    """Return the largest relative difference of a metric in these steps."""
    return max((_relative([float(rows[step][name]) for rows in runs]) for step in steps), default=0)


def _relative(values: Sequence[float]) -> float:
    largest = max(map(abs, values))
    return (max(values) - min(values)) / largest if largest else 0.0
