"""A cell that begins as a copy of a process with TRL is the run that it would be by itself."""

from __future__ import annotations

import pytest

from gem_compare import runner
from gem_compare.grid import Cell
from gem_compare.prepared import PreparedProcesses
from gem_core.runs.directory.run_dir import RunDir

QUICK = (
    "train.steps=2",
    "batch.episodes=8",
    "eval.episodes=20",
    "model.tiny.warm_start_steps=10",
)


@pytest.mark.timeout(600)
def test_a_forked_cell_is_the_same_run(tmp_path, monkeypatch):
    started = []
    original = runner._fork
    monkeypatch.setattr(
        runner, "_fork", lambda *args: started.append(original(*args)) or started[-1]
    )
    cell = Cell("guess-the-number-easy", "trl", "rebn", 1)
    other = Cell("guess-the-number-easy", "trl", "rebn", 0)
    alone, together = (runner.GridPlan(tmp_path / name, extra=QUICK) for name in ("a", "b"))
    assert runner.run_cell(cell, alone) is None
    with PreparedProcesses() as prepared:
        assert runner.run_cell(other, together, prepared) is None
        assert runner.run_cell(cell, together, prepared) is None  # the second copy
    assert [process is not None for process in started] == [False, True, True]
    expected, actual = (RunDir(plan.directory(cell)) for plan in (alone, together))
    for mine, theirs in zip(expected.metrics(), actual.metrics(), strict=True):
        timed = {name for name in mine if name.startswith("time")}
        assert {k: v for k, v in mine.items() if k not in timed} == {
            k: v for k, v in theirs.items() if k not in timed
        }
    assert (expected.path / "model" / "model.safetensors").read_bytes() == (
        actual.path / "model" / "model.safetensors"
    ).read_bytes()
