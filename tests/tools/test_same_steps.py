"""Runs of one seed in several trainers: until which step they are the same run."""

from __future__ import annotations

import json

import pytest

from gem_compare.results import read_cells

ROW = {"success/mean": 0.5, "reward/mean": 0.5, "turns/mean": 2.0, "tokens/action": 7.0}


@pytest.fixture
def same_steps(load_tool):
    return load_tool("same_steps").same_steps


@pytest.fixture
def runs(tmp_path):
    """Write a run per trainer; return their cells."""

    def write(rows_by_trainer, after=0.5):
        for place, (trainer, rows) in enumerate(rows_by_trainer.items()):
            folder = tmp_path / "game" / trainer / "rebn" / "seed0"
            folder.mkdir(parents=True)
            lines = [
                json.dumps({"step": step, "grad_norm": 1.0, "entropy": 2.0, **ROW, **row}) + "\n"
                for step, row in enumerate(rows, 1)
            ]
            (folder / "metrics.jsonl").write_text("".join(lines))
            rate = after + 0.1 * place
            evaluation = {"success/mean": rate, "success/low": rate, "success/high": rate}
            result = {
                "before": None, "after": evaluation, "steps": len(rows), "episodes": 8,
                "seconds": {"train": 1.0}, "versions": {}, "hardware": {}, "python": "3.11",
            }  # fmt: skip
            (folder / "result.json").write_text(json.dumps(result))
        return read_cells(tmp_path)

    return write


def test_runs_with_equal_figures_are_the_same_to_the_end(runs, same_steps):
    found = same_steps(runs({"trl": [{}, {}], "oat": [{}, {"grad_norm": 0.9}]}))
    assert (found.trainers, found.same, found.steps) == (("oat", "trl"), 2, 2)
    assert found.grad_norm == pytest.approx(0.1)
    assert found.entropy == 0
    assert found.gap == pytest.approx(0.1)


@pytest.mark.parametrize("name", ROW)
def test_one_other_figure_of_one_trainer_ends_the_same_steps(runs, same_steps, name):
    other = [{}, {}, {name: ROW[name] + 0.001, "grad_norm": 5.0}, {}]
    found = same_steps(runs({"oat": [{}] * 4, "rl2": [{}] * 4, "trl": other}))
    assert (found.same, found.steps) == (2, 4)
    assert found.grad_norm == 0  # only of the steps that are the same


def test_a_shorter_run_is_the_same_to_its_end(runs, same_steps):
    found = same_steps(runs({"oat": [{}] * 4, "trl": [{}] * 3}))
    assert (found.same, found.steps) == (3, 4)


def test_only_runs_of_one_experiment_are_compared(runs, same_steps):
    cells = runs({"oat": [{}], "trl": [{}]})
    for chosen in ([], cells[:1], [cells[0], cells[0]]):
        with pytest.raises(ValueError, match="two finished runs or more of one experiment"):
            same_steps(chosen)
