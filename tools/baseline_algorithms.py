"""A section of ``docs/baselines.md``: four algorithms in every trainer."""

from __future__ import annotations

from collections.abc import Sequence

from gem_core.compare.results import CellResult
from gem_core.report import markdown_table
from gem_core.report.tables import success

FOUR = """\
## Four algorithms

Success after training, with 95 % intervals of the evaluation, of the baselines that have runs of
GRPO or PPO; first seed. GRPO's groups have 8 episodes of one task. PPO trains a critic; each
trainer begins with one of its own, so that PPO's runs draw the same tokens in the first step only.
verl's rate differs within a step, as above, in GRPO's and PPO's runs too.
"""
ALGORITHMS = ("rebn", "reinforce", "grpo", "ppo")
_EXTRA = {"grpo", "ppo"}


def four_algorithms(
    names: Sequence[str], cells: Sequence[CellResult], trainers: Sequence[str]
) -> str:
    """Return the section; empty without a run of GRPO or PPO."""
    rows = []
    for name in names:
        runs = [cell for cell in cells if cell.baseline == name and cell.result]
        if _EXTRA & {cell.algorithm for cell in runs}:
            rows += [_row(name, algorithm, runs, trainers) for algorithm in ALGORITHMS]
    if not rows:
        return ""
    return f"{FOUR}\n{markdown_table(('baseline', 'algorithm', *trainers), rows)}"


def _row(
    name: str, algorithm: str, runs: Sequence[CellResult], trainers: Sequence[str]
) -> tuple[str, ...]:
    """Return the line of one baseline and algorithm: a figure for each trainer."""
    figures = []
    for trainer in trainers:
        mine = [cell for cell in runs if (cell.algorithm, cell.trainer) == (algorithm, trainer)]
        first = min(mine, key=lambda cell: cell.seed, default=None)
        figures.append(success(first.result["after"]) if first and first.result else "missing")
    return (f"`{name}`", algorithm, *figures)
