"""Test whether the trainers agree: their final success side by side, and a permutation test.

The runs of two trainers differ in engine, batching and order of arrival, and training amplifies
that as it amplifies a change of the seed. With one seed, two trainers can therefore not be told
apart. With several seeds they can: if the trainers do the same thing, their names are exchangeable
within each seed (which determines the common start), so that the spread of their means is one that
shuffled names give as well.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence

from gem_compare.power import smallest_deficit
from gem_compare.results import CellResult

_DRAWS = 10_000
FOUND = "smallest deficit found"
"""Column: what one trainer would have to be worse by for the test to find it, 4 times in 5."""


def side_by_side(cells: Iterable[CellResult]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return head and rows of a table of the success after training, with a column per trainer.

    There is a row per baseline and algorithm. A figure is the mean over the seeds that every
    trainer finished (where there is none, over those that this trainer finished). ``largest gap``
    is the difference between the highest and the lowest of them, ``p`` the result of `exchangeable`
    and `FOUND` that of `smallest_deficit` (``-`` for fewer than two common seeds, or where nothing
    would be found). The last row is over all experiments that every trainer finished.
    """
    known = list(cells)
    trainers = sorted({cell.trainer for cell in known})
    lines: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for cell in known:
        line = lines.setdefault((cell.baseline, cell.algorithm), {t: {} for t in trainers})
        after = (cell.result or {}).get("after")
        if after:
            line[cell.trainer][cell.seed] = after["success/mean"]
    head = ("baseline", "algorithm", *trainers, "common seeds", "largest gap", "p", FOUND)
    rows = [_row(name, lines[name].values()) for name in sorted(lines)]
    shared = [block for line in lines.values() for block in _blocks(line.values())]
    if len(lines) > 1 and len(shared) > 1:
        rows.append(_line(("all", "-"), [_mean(c) for c in zip(*shared, strict=True)], "-", shared))
    return head, rows


def exchangeable(table: Sequence[Sequence[float]], draws: int = _DRAWS) -> float:
    """Return the p-value of a permutation test that shuffles the trainers' names within each seed.

    The statistic is the sum of squares of the trainers' means. A small p-value means that the
    trainers differ by more than the runs of one trainer do. The shuffles are seeded.

    Args:
        table: final success: a row per seed, with one figure per trainer in the same order.
        draws: number of shuffles; the smallest possible result is ``1 / (draws + 1)``.

    Raises:
        ValueError: there are fewer than two seeds or trainers, or rows of unequal length.

    >>> exchangeable([[0.1, 0.9, 0.5], [0.9, 0.5, 0.1], [0.5, 0.1, 0.9]])
    1.0
    >>> exchangeable([[0.1, 0.2, 0.9]] * 6) < 0.001
    True
    """
    if len(table) < 2 or len({len(row) for row in table}) != 1 or len(table[0]) < 2:
        raise ValueError("The test needs two seeds or more, each with the same trainers.")
    rng = random.Random(0)
    rows = [list(row) for row in table]
    observed = _spread(rows)
    reached = 0
    for _ in range(draws):
        for row in rows:
            rng.shuffle(row)
        reached += _spread(rows) >= observed - 1e-9  # shuffled sums may differ by rounding
    return (1 + reached) / (1 + draws)


def _spread(rows: Sequence[Sequence[float]]) -> float:
    totals = [sum(column) for column in zip(*rows, strict=True)]
    mean = sum(totals) / len(totals)
    return math.fsum((total - mean) ** 2 for total in totals)


def _row(name: tuple[str, str], by_trainer: Iterable[Mapping[int, float]]) -> tuple[str, ...]:
    columns = list(by_trainer)
    common = sorted(set.intersection(*map(set, columns)))
    means = [_mean([column[seed] for seed in common or sorted(column)]) for column in columns]
    return _line(name, means, ",".join(map(str, common)) or "-", _blocks(columns))


def _line(
    name: tuple[str, str], means: Sequence[float], seeds: str, blocks: Sequence[Sequence[float]]
) -> tuple[str, ...]:
    known = [mean for mean in means if not math.isnan(mean)]
    shown = ["-" if math.isnan(mean) else f"{mean:.3f}" for mean in means]
    gap = f"{max(known) - min(known):.3f}" if len(known) > 1 else "-"
    tested = len(blocks) > 1 and len(means) > 1
    if not tested:
        return (*name, *shown, seeds, gap, "-", "-")
    deficit = smallest_deficit(blocks)
    shown_deficit = "-" if deficit is None else f"{deficit:.2f}"
    return (*name, *shown, seeds, gap, f"{exchangeable(blocks):.2f}", shown_deficit)


def _blocks(columns: Iterable[Mapping[int, float]]) -> list[list[float]]:
    """Return a row per seed that every trainer finished."""
    columns = list(columns)
    common = sorted(set.intersection(*map(set, columns)))
    return [[column[seed] for column in columns] for seed in common]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
