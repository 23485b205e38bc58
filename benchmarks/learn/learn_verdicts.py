"""Which baselines learn, by `gem_core.evaluation.criterion`, from the cells' files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from learn_cells import LearnCell

from gem_core.errors import GemError
from gem_core.evaluation.controls.file import CONTROLS
from gem_core.evaluation.criterion import (
    CellVerdict,
    ControlDifference,
    Evidence,
    Table,
    judge,
    weigh,
)

Experiments = dict[tuple[str, str], dict[str, list[LearnCell]]]
"""(trainer, algorithm) -> baseline -> its cells, by seed."""


class Judged(NamedTuple):
    """What the cells of one baseline, trainer and algorithm show."""

    cells: Sequence[LearnCell]
    evidence: Evidence
    verdict: CellVerdict

    @property
    def best(self) -> ControlDifference:
        """The difference to the control with the highest success."""
        return max(self.evidence.differences, key=lambda difference: difference.success)


def group_cells(cells: Iterable[LearnCell]) -> Experiments:
    """Return the cells by trainer and algorithm, and in these by baseline and seed."""
    groups: Experiments = {}
    for cell in sorted(cells, key=lambda cell: cell.seed):
        baselines = groups.setdefault((cell.trainer, cell.algorithm), {})
        baselines.setdefault(cell.baseline, []).append(cell)
    return groups


def judge_experiments(baselines: Mapping[str, Sequence[LearnCell]]) -> dict[str, Judged]:
    """Return what each baseline of one trainer and algorithm shows.

    All baselines that have a cell are judged together: Holm's correction is over them.

    Args:
        baselines: name -> cells of its seeds.

    Raises:
        GemError: the cells of a baseline cannot be paired.
    """
    evidence = {name: weigh_cells(cells) for name, cells in baselines.items()}
    verdicts = judge(evidence)
    return {name: Judged(baselines[name], evidence[name], verdicts[name]) for name in evidence}


def weigh_cells(cells: Sequence[LearnCell]) -> Evidence:
    """Return the evidence of the seeds of one baseline, trainer and algorithm.

    Raises:
        GemError: two seeds have evaluations of different lengths.
    """
    return weigh(
        outcome_table([cell.after.sampled for cell in cells]),
        {name: outcome_table([cell.controls[name] for cell in cells]) for name in CONTROLS},
        distinct=min(cell.eval_tasks["distinct"] for cell in cells),
        seen=max(cell.eval_tasks["seen_in_training"] for cell in cells),
        greedy=outcome_table([cell.after.greedy for cell in cells]),
    )


def outcome_table(texts: Sequence[str]) -> Table:
    """Return outcomes as numbers, shape (seeds, tasks).

    Raises:
        GemError: the texts have different lengths.

    >>> outcome_table(["01", "11"]).tolist()
    [[0.0, 1.0], [1.0, 1.0]]
    """
    if len({len(text) for text in texts}) != 1:
        raise GemError("The seeds of a baseline were evaluated on different numbers of tasks.")
    return np.array([[character == "1" for character in text] for text in texts], dtype=float)
