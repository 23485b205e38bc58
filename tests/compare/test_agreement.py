"""The test of agreement has power: equal trainers pass, a worse one is detected."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest

from gem_compare.agreement import exchangeable, side_by_side
from gem_compare.power import smallest_deficit
from gem_compare.results import CellResult


def runs(after, trainers=("oat", "trl"), baseline="game"):
    """Cells of one experiment: a row per seed, a figure per trainer, ``None`` where unfinished."""
    cells = []
    for seed, row in enumerate(after):
        for trainer, value in zip(trainers, row, strict=True):
            status = "unfinished" if value is None else "done"
            result = None if value is None else {"after": {"success/mean": value}}
            cells.append(CellResult(baseline, trainer, "rebn", seed, status, result, None, Path()))
    return cells


def test_noise_alone_is_rarely_called_a_difference():
    rng = random.Random(1)
    p_values = []
    for _ in range(100):
        starts = [rng.random() for _ in range(3)]
        table = [[start + rng.gauss(0, 0.1) for _ in range(5)] for start in starts]
        p_values.append(exchangeable(table, draws=400))
    assert sum(p < 0.05 for p in p_values) <= 12
    assert 0.35 < sum(p_values) / len(p_values) < 0.65


def test_a_worse_trainer_is_found_whatever_the_seeds_do():
    rng = random.Random(2)
    table = [[start + rng.gauss(0, 0.02) for _ in range(4)] + [start - 0.15] for start in (0, 1, 5)]
    assert exchangeable(table) < 0.05


@pytest.mark.parametrize("table", [[], [[0.1, 0.2]], [[0.1], [0.2]], [[0.1, 0.2], [0.3]]])
def test_what_cannot_be_tested_is_refused(table):
    with pytest.raises(ValueError, match="two seeds"):
        exchangeable(table)


def test_means_are_over_the_common_seeds():
    head, ((*_, oat, trl, seeds, gap, p, _),) = side_by_side(
        runs([(0.5, 0.6), (0.7, 0.9), (None, 0.1)])
    )
    assert head[2:4] == ("oat", "trl")
    assert (oat, trl, seeds, gap) == ("0.600", "0.750", "0,1", "0.150") and 0.3 < float(p) <= 1


def test_a_trainer_without_a_run_is_a_dash_and_nothing_is_tested():
    _, (row,) = side_by_side(runs([(0.5, None), (0.7, None)]))
    assert row == ("game", "rebn", "0.600", "-", "-", "-", "-", "-")


def test_the_last_line_is_over_all_experiments():
    cells = (
        runs([(0.5, 0.6)]) + runs([(0.7, 0.9)], baseline="other") + runs([(1, None)], baseline="x")
    )
    _, rows = side_by_side(cells)
    assert [row[0] for row in rows] == ["game", "other", "x", "all"]
    assert rows[0][-1] == "-" and rows[-1][2:6] == ("0.600", "0.750", "-", "0.150")
    assert rows[-1][-2] != "-"


def test_the_smallest_deficit_is_where_four_of_five_tests_find_it():
    """The power is counted with the real test on other random numbers."""
    rng = random.Random(3)
    table = [[start + rng.gauss(0, 0.05) for _ in range(5)] for start in (0.2, 0.5, 0.8)]
    deficit = smallest_deficit(table)
    spread = (sum(statistics.variance(row) for row in table) / 3) ** 0.5
    assert 2 * spread < deficit < 6 * spread
    hits = 0
    for _ in range(100):
        drawn = [[rng.gauss(0, spread) - deficit * (k == 0) for k in range(5)] for _ in range(3)]
        hits += exchangeable(drawn, draws=400) <= 0.05
    assert 68 <= hits <= 92


def test_more_seeds_find_less_and_two_may_find_nothing():
    rows = [[0.9, 0.8, 0.85], [0.7, 0.8, 0.75]]
    assert smallest_deficit(rows) is None  # 36 shuffles of two rows of three: p is never below 0.05
    assert smallest_deficit(rows * 3) < 0.5
