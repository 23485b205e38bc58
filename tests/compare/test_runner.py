"""The grid runner: no cell is lost or repeated, whichever process is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gem_compare.folder import claim
from gem_compare.grid import Cell, make_grid
from gem_compare.reasons import error_line
from gem_compare.recipes import find_mixed_experiments, mark_stale
from gem_compare.results import read_cells
from gem_compare.runner import (
    GridPlan,
    command,
    run_cell,
    run_grid,
    status,
    trainer_python,
)
from gem_core.errors import RunError, UnknownNameError
from gem_core.runs.directory.run_dir import RunDir


def alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_cells_run_once(tmp_path, cells, behave, starts):
    plan = GridPlan(tmp_path)
    lines = []
    assert run_grid(cells, plan, lines.append)["done"] == 6
    assert run_grid(cells, plan, lines.append)["done"] == 6
    assert [starts(plan, cell) for cell in cells] == [1] * 6
    assert sum("done before" in line for line in lines) == 6


def test_a_failed_cell_keeps_reason_and_log_and_stops_no_other(tmp_path, cells, behave, starts):
    behave("trl/rebn/seed1", "fails")
    plan = GridPlan(tmp_path)
    assert run_grid(cells, plan, lambda _: None) == {
        "done": 5,
        "stale": 0,
        "failed": 1,
        "started": 0,
        "waiting": 0,
    }
    failure = json.loads((plan.directory(cells[1]) / "failed.json").read_text())
    assert failure["reason"] == "RuntimeError: out of luck" and failure["exit_code"] == 1
    assert "something happened" in (plan.directory(cells[1]) / "log.txt").read_text()
    run_grid(cells, plan, lambda _: None)
    assert starts(plan, cells[1]) == 1  # not again without retry_failed
    behave("trl/rebn/seed1", "trains")
    assert run_grid(cells, GridPlan(tmp_path, retry_failed=True), lambda _: None)["done"] == 6
    assert starts(plan, cells[1]) == 2


def test_a_silent_cell_is_ended_with_its_children(tmp_path, cells, behave):
    behave("seed0", "hangs")
    plan = GridPlan(tmp_path, idle_s=3.0)
    assert "wrote nothing for 3 s" in run_cell(cells[0], plan)
    assert status(cells[0], plan) == "failed"
    child = int((plan.directory(cells[0]) / "child").read_text())
    assert not alive(child)


def test_the_budget_is_of_training_and_not_of_pauses(tmp_path, cells, behave):
    behave("seed0", "rests")
    behave("seed1", "trains long")
    plan = GridPlan(tmp_path, budget_s=1.0)
    assert run_cell(cells[0], plan) is None
    assert "budget of 1 s" in run_cell(cells[1], plan)
    assert status(cells[1], plan) == "failed"


def test_finished_cells_are_recorded_and_not_run_in_another_checkout(
    tmp_path, cells, behave, starts
):
    plan = GridPlan(tmp_path / "runs", record=tmp_path / "record")
    assert run_grid(cells[:2], plan, lambda _: None)["done"] == 2
    files = [path for path in plan.record.rglob("*") if path.is_file()]
    assert len(files) == 2 * 5
    assert sum(path.stat().st_size for path in files) < 2 * 8000
    recorded = read_cells(plan.record)
    assert [cell.result for cell in recorded] == [c.result for c in read_cells(plan.out)]
    other = GridPlan(tmp_path / "elsewhere", record=plan.record)
    assert run_grid(cells[:3], other, lambda _: None)["done"] == 3
    assert [starts(other, cell) for cell in cells[:3]] == [0, 0, 1]
    changed = GridPlan(tmp_path / "third", extra=("algorithm.gamma=0.1",), record=plan.record)
    run_grid(cells[:1], changed, lambda _: None)
    assert starts(changed, cells[0]) == 1  # the figures are of another recipe
    assert RunDir(plan.record / cells[0].name).recipe.algorithm.gamma == 0.1


def test_a_recipe_that_is_wrong_fails_before_anything_starts(tmp_path, cells, behave, starts):
    plan = GridPlan(tmp_path, extra=("algorithm.gama=1",))
    assert "algorithm.gamma" in run_cell(cells[0], plan)
    assert starts(plan, cells[0]) == 0


def test_a_runner_killed_in_a_cell_resumes_and_ends_the_orphan(tmp_path, cells, behave, starts):
    """The outer runner is a process of its own, killed with SIGKILL; its cell keeps running."""
    behave("seed0", "trains")
    plan = GridPlan(tmp_path)
    cell = cells[0]
    folder = plan.directory(cell)
    outer = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from gem_compare import runner\n"
        "from gem_compare.grid import Cell\n"
        "from pathlib import Path\n"
        "cell = Cell('guess-the-number-easy', 'trl', 'rebn', 0)\n"
        "code = 'import pathlib, sys, time; p = pathlib.Path(sys.argv[1]);'\n"
        "code += '(p / \"recipe.json\").write_text(sys.argv[2]); time.sleep(300)'\n"
        "import json\n"
        "text = json.dumps(cell.recipe('tiny').to_dict())\n"
        "runner.command = lambda c, p: [sys.executable, '-c', code, str(p.directory(c)), text]\n"
        "runner.run_cell(cell, runner.GridPlan(Path(sys.argv[2])))\n"
    )
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen([sys.executable, "-c", outer, root, str(tmp_path)])
    while not (folder / "recipe.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    orphan = int((folder / "pid").read_text())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert alive(orphan) and status(cell, plan) == "started"
    assert run_cell(cell, plan) is None
    assert not alive(orphan) and status(cell, plan) == "done" and starts(plan, cell) == 1


def test_the_command_is_the_train_verb_with_resume(tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_CORE_PYTHON_TRL", "/some/python")
    argv = command(Cell("guess-the-number-easy", "trl", "grpo", 2), GridPlan(tmp_path, "tiny"))
    assert argv[:5] == ["/some/python", "-m", "gem_core.cli", "train", "guess-the-number-easy"]
    assert argv[-1] == "--resume" and "seed=2" in argv and "batch.group_size=8" in argv
    assert trainer_python("trl") == "/some/python"


def test_grids_are_even_and_guess_names():
    grid = make_grid(["a", "b"], ["trl", "oat"], ["rebn", "grpo"], [0, 1])
    assert len(set(grid)) == 16 and {cell.seed for cell in grid[:8]} == {0}
    for first in range(0, 16, 2):  # every baseline has a cell before one has the next
        assert [cell.baseline for cell in grid[first : first + 2]] == ["a", "b"]
    assert grid[0].trainer != grid[1].trainer
    assert [c.trainer for c in make_grid(["a"], ["trl", "oat"], ["rebn"], [0])] == ["trl", "oat"]
    with pytest.raises(UnknownNameError, match="Did you mean 'grpo'"):
        make_grid(["a"], ["trl"], ["grop"], [0])
    with pytest.raises(UnknownNameError, match="Did you mean 'verl'"):
        make_grid(["a"], ["verll"], ["rebn"], [0])


def test_a_cell_of_another_recipe_is_neither_reported_nor_overwritten(
    tmp_path, cells, behave, starts
):
    plan = GridPlan(tmp_path)
    lines = []
    run_grid(cells, plan, lambda _: None)
    other = GridPlan(tmp_path, extra=("algorithm.gamma=0.1",))
    assert run_grid(cells, other, lines.append)["stale"] == 6
    assert "algorithm.gamma = 0.9, not 0.1" in lines[0] and "--retry-stale" in lines[0]
    marked = mark_stale(read_cells(tmp_path), cells, other.profile, other.extra)
    assert [cell.status for cell in marked] == ["stale"] * 6
    assert all(cell.result is None for cell in marked)
    kept = mark_stale(read_cells(tmp_path), cells[:2], plan.profile, plan.extra)
    assert [(cell.name, cell.status) for cell in kept] == [(c.name, "done") for c in cells[:2]]
    again = GridPlan(tmp_path, extra=("algorithm.gamma=0.1",), retry_stale=True)
    assert run_grid(cells[:1], again, lambda _: None)["done"] == 1
    assert starts(plan, cells[0]) == 1  # the old run is gone


def test_cells_of_one_experiment_with_different_recipes_are_named(tmp_path, cells, behave):
    run_grid(cells[:2], GridPlan(tmp_path), lambda _: None)
    assert find_mixed_experiments(read_cells(tmp_path)) == []
    run_grid(cells[2:], GridPlan(tmp_path, extra=("algorithm.lr=0.5",)), lambda _: None)
    (line,) = find_mixed_experiments(read_cells(tmp_path))
    assert "algorithm.lr" in line and "0.5: " in line and cells[0].name in line


def test_one_runner_at_a_time_and_one_kind_of_comparison(tmp_path):
    holder = f"process {os.getpid()}"
    with (
        claim(tmp_path, quick=False),
        pytest.raises(RunError, match=holder),
        claim(tmp_path, quick=False),
    ):
        pass
    with claim(tmp_path, quick=False):
        pass
    with pytest.raises(RunError, match="another directory"), claim(tmp_path, quick=True):
        pass


LOG = """
$ python -m gem_core.cli train
Traceback (most recent call last):
  File "x.py", line 1, in <module>
(TaskRunner pid=12) ValueError: the real one: 3
ray.exceptions.RayTaskError(ValueError): ray::TaskRunner.run()
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: worker failed
[W1122 ProcessGroupGloo.cpp] destroyed
"""


def test_the_reason_is_the_error_and_not_the_message_of_a_launcher():
    assert error_line(LOG) == "(TaskRunner pid=12) ValueError: the real one: 3"
    assert error_line("gem-core: 'x' is unknown. Did you mean 'y'?") != "no output"
    assert error_line("one\n\ntwo\n") == "two" and error_line("") == "no output"
