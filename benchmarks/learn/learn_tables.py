"""The tables of the page: every baseline beside its controls, and the other trainers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from learn_cells import LearnCell, equal_steps
from learn_verdicts import Experiments, Judged, judge_experiments

from gem_core.evaluation.controls.file import CONTROLS
from gem_core.results import markdown_table

HEAD = (
    "baseline",
    "seeds",
    "tasks / trained on",
    *(name.replace("_", " ") for name in CONTROLS),
    "trained (greedy)",
    "above the best control",
    "p",
    "verdict",
)
OTHERS_HEAD = (
    "baseline",
    "algorithm",
    "trainer",
    "seeds",
    "trained (greedy)",
    "TRL",
    "same tokens as TRL",
    "verdict",
)
MISSING = "missing"


def suite_table(
    suite: Sequence[str], cells: Mapping[str, Sequence[LearnCell]], seeds: Sequence[int]
) -> tuple[str, dict[str, Judged]]:
    """Return the table of one trainer and algorithm, and what it shows.

    Args:
        suite: all baselines, a row each.
        cells: baseline -> its cells.
        seeds: those that there should be; what lacks is shown as missing.
    """
    judged = judge_experiments(cells)
    rows = [suite_row(name, judged.get(name), seeds) for name in suite]
    return markdown_table(HEAD, rows), judged


def suite_row(name: str, judged: Judged | None, seeds: Sequence[int]) -> list[str]:
    """Return the row of a baseline."""
    if judged is None:
        return [name, MISSING, *("" for _ in HEAD[2:])]
    evidence, verdict, best = judged.evidence, judged.verdict, judged.best
    return [
        name,
        seeds_in_words([cell.seed for cell in judged.cells], seeds),
        f"{evidence.distinct} / {evidence.seen}",
        *(f"{difference.success:.3f}" for difference in evidence.differences),
        trained_in_words(judged),
        f"{best.mean:+.3f} [{best.low:+.3f}, {best.high:+.3f}] ({best.control.replace('_', ' ')})",
        f"{verdict.p:.3f}",
        str(verdict),
    ]


def trained_in_words(judged: Judged) -> str:
    """Return the success of the trained policy, sampled and greedy.

    Both are of the same seeds; greedy success is part of every cell.
    """
    assert judged.evidence.greedy is not None
    return f"{judged.evidence.success:.3f} ({judged.evidence.greedy:.3f})"


def seeds_in_words(there: Sequence[int], wanted: Sequence[int]) -> str:
    """Return which seeds there are, and which are missing.

    >>> seeds_in_words([0, 1, 2], [0, 1, 2])
    '0 to 2'
    >>> seeds_in_words([0, 2], [0, 1, 2])
    '0, 2; 1 missing'
    """
    missing = [str(seed) for seed in wanted if seed not in there]
    run = len(there) > 2 and list(there) == list(range(there[0], there[-1] + 1))
    text = f"{there[0]} to {there[-1]}" if run else ", ".join(map(str, there))
    return f"{text}; {', '.join(missing)} {MISSING}" if missing else text


def others_table(
    judgements: Mapping[tuple[str, str], Mapping[str, Judged]],
    experiments: Experiments,
    suite: Sequence[str],
    reference: str,
) -> str:
    """Return the table of all other trainers beside the reference's cells of the same seeds.

    Args:
        judgements: (trainer, algorithm) -> baseline -> what it shows; of the other trainers.
        experiments: all cells; the reference's are read.
        suite: the order of the baselines.
        reference: the trainer that the others are compared with.
    """
    rows: list[tuple[str, ...]] = []
    for (trainer, algorithm), baselines in sorted(judgements.items()):
        models = experiments.get((reference, algorithm), {})
        for name, judged in baselines.items():
            pairs = pair_seeds(judged.cells, models.get(name, ()))
            rows.append(
                (
                    name,
                    algorithm,
                    trainer,
                    seeds_in_words([cell.seed for cell in judged.cells], []),
                    trained_in_words(judged),
                    reference_in_words(pairs),
                    ", ".join(same_tokens_in_words(*pair) for pair in pairs) or MISSING,
                    str(judged.verdict),
                )
            )
    order = {name: place for place, name in enumerate(suite)}
    rows.sort(key=lambda row: (order.get(row[0], len(order)), *row))
    return markdown_table(OTHERS_HEAD, rows)


def pair_seeds(
    cells: Sequence[LearnCell], models: Sequence[LearnCell]
) -> list[tuple[LearnCell, LearnCell]]:
    """Return the cells whose seed the reference has, each with that cell."""
    by_seed = {cell.seed: cell for cell in models}
    return [(cell, by_seed[cell.seed]) for cell in cells if cell.seed in by_seed]


def reference_in_words(pairs: Sequence[tuple[LearnCell, LearnCell]]) -> str:
    """Return the reference's mean success on the seeds of the pairs, sampled."""
    if not pairs:
        return MISSING
    texts = [model.after.sampled for _, model in pairs]
    return f"{sum(text.count('1') / len(text) for text in texts) / len(texts):.3f}"


def same_tokens_in_words(cell: LearnCell, model: LearnCell) -> str:
    """Return until which training step two cells drew the same tokens."""
    equal = equal_steps(cell, model)
    steps = len(cell.tokens)
    return "all steps" if equal == steps else f"{equal} of {steps} steps"
