"""What the quickstart finds, in words, from its cells of ``benchmarks/learn``: for `readme.py`.

The quickstart is one of the experiments that are measured there, so its seeds, its controls and the
verdict of the criterion are those of that page.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parent.parent
STUDY = ROOT / "benchmarks" / "learn"
sys.path.append(str(STUDY))
from learn_cells import RESULTS, LearnCell, Played, read_learn_cells  # noqa: E402
from learn_tables import seeds_in_words  # noqa: E402
from learn_verdicts import Judged, group_cells, judge_experiments  # noqa: E402

BASELINE, TRAINER, ALGORITHM = "sokoban-easy", "trl", "rebn"
CONTROLS = {
    "random": "the random player",
    "constant": "the best constant answer",
    "sequence": "the best blind sequence of actions",
    "start_sampled": "the model before training, sampled",
    "start_greedy": "the model before training, greedy",
}


def judged_quickstart(results: Path = RESULTS) -> Judged:
    """Return what the cells of the quickstart show, judged together with all others, as there."""
    experiments = group_cells(read_learn_cells(results))
    judged = judge_experiments(experiments.get((TRAINER, ALGORITHM), {}))
    if BASELINE not in judged:
        raise SystemExit(f"{results} has no cell of {BASELINE}: python benchmarks/learn/run.py")
    return judged[BASELINE]


def success(played: Played) -> float:
    """Return the share of the evaluation's episodes that succeed, sampled."""
    return played.sampled.count("1") / len(played.sampled)


def in_words(judged: Judged, to_root: str = "") -> str:
    """Return the generated part of a page.

    Args:
        judged: what the cells show.
        to_root: how the page's links reach the folder of the checkout, as ``../``.
    """
    evidence, best = judged.evidence, judged.best
    page = f"{to_root}benchmarks/learn/README.md"
    return (
        f"{rates_in_words(judged.cells)}\n"
        f"The highest of five controls, {CONTROLS[best.control]}, has {best.success:.2f}. "
        f"The {evidence.tasks} episodes have {evidence.distinct} distinct tasks, "
        f"{evidence.seen or 'none'} of them trained on.\n"
        f"Verdict by [the criterion]({page}) of this project: **{judged.verdict}**"
        f"{'; one run says nothing about other seeds' if evidence.seeds == 1 else ''}.\n"
    )


def rates_in_words(cells: Sequence[LearnCell]) -> str:
    """Return the success before and after training: of one seed, or the mean and the worst."""
    rates = [(success(cell.before), success(cell.after)) for cell in cells]
    before, after = (mean(column) for column in zip(*rates, strict=True))
    seeds = seeds_in_words([cell.seed for cell in cells], [])
    whose = f"seed {seeds}" if len(cells) == 1 else f"mean of the seeds {seeds}"
    text = (
        f"Success on held-out tasks, sampled, {whose}: **{before:.2f} before, {after:.2f} after** "
        f"{cells[0].recipe['train']['steps']} steps"
    )
    if len(cells) == 1:
        return f"{text}."
    worst = min(range(len(cells)), key=lambda k: rates[k][1])
    low, high = rates[worst]
    return f"{text}; the worst seed, {cells[worst].seed}: {low:.2f} before, {high:.2f} after."
