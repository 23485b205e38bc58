"""A section of ``docs/baselines.md``: PPO beside ReBN in every trainer."""

from __future__ import annotations

from collections.abc import Sequence

from baseline_agreement import APART
from same_steps import same_steps

from gem_compare.results import CellResult
from gem_core.results import markdown_table
from gem_core.results.tables import success

PPO = """\
## PPO beside ReBN

Success after training, with 95 % intervals of the evaluation, of the baselines that have runs of
PPO; first seed. It compares trainers, and does not show learning (see above). PPO trains a critic,
which begins with V = 0 in every trainer. *same steps*: as above, of all trainers but verl, whose
rate differs within a step in these runs, too. In the experiments of `benchmarks/lockstep`,
which have a constant rate, its runs are those of the others token by token (one with PPO).
"""
ALGORITHMS = ("rebn", "ppo")


def ppo_beside_rebn(
    names: Sequence[str], cells: Sequence[CellResult], trainers: Sequence[str]
) -> str:
    """Return the section; empty without a run of PPO."""
    rows = []
    for name in names:
        runs = [cell for cell in cells if cell.baseline == name and cell.result]
        if "ppo" in {cell.algorithm for cell in runs}:
            rows += [_row(name, algorithm, runs, trainers) for algorithm in ALGORITHMS]
    if not rows:
        return ""
    head = ("baseline", "algorithm", *trainers, "same steps")
    return f"{PPO}\n{markdown_table(head, rows)}"


def _row(
    name: str, algorithm: str, runs: Sequence[CellResult], trainers: Sequence[str]
) -> tuple[str, ...]:
    """Return the line of one baseline and algorithm: a figure for each trainer."""
    figures = []
    firsts = []
    for trainer in trainers:
        mine = [cell for cell in runs if (cell.algorithm, cell.trainer) == (algorithm, trainer)]
        first = min(mine, key=lambda cell: cell.seed, default=None)
        figures.append(success(first.result["after"]) if first and first.result else "*missing*")
        if first and trainer != APART:
            firsts.append(first)
    return (f"`{name}`", algorithm, *figures, _same(firsts))


def _same(cells: Sequence[CellResult]) -> str:
    """Return how many of the first steps are the same in these runs of different trainers."""
    if len(cells) < 2:
        return "-"
    line = same_steps(cells)
    return f"{line.same} of {line.steps}"
