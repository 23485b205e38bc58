"""docs/baselines.md agrees with the suite, its recipes and the committed figures."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from gem_core.runs.recipe.suite import load_suite

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "baselines.md"
RUNS = ROOT / "benchmarks" / "trainers" / "results"


def test_the_page_is_up_to_date():
    command = [sys.executable, "scripts/baseline_reference.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_baseline_has_a_line_of_scores():
    scores = PAGE.read_text(encoding="utf-8").partition("## The tiny profile")[2]
    for baseline in load_suite():
        assert f"| `{baseline.name}` |" in scores


def test_runs_and_missing_runs_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    reference = import_module("baseline_reference")
    run = tmp_path / "sudoku-easy" / "trl" / "rebn" / "seed0"
    shutil.copytree(RUNS / "sudoku-easy" / "trl" / "rebn" / "seed0", run)
    page, svg = reference.render(tmp_path).values()
    (line,) = [row for row in page.splitlines() if row.count("missing") == 4]
    assert line.startswith("| `sudoku-easy` | 0.000 [0.000, 0.107] | 0.000 [0.000, 0.107] no |")
    assert "rebn: 1 of 120 cells" in page and "reinforce: 0 of 120 cells" in page
    assert "trl 1.16.0" in page and "AMD EPYC, 2 cores, no GPU" in page
    assert svg.count("<polyline") == 1 and svg.count("no run") == 23
    better = json.loads((run / "result.json").read_text())
    better["after"].update({"success/mean": 0.5, "success/low": 0.4, "success/high": 0.6})
    (run / "result.json").write_text(json.dumps(better))
    assert "0.500 [0.400, 0.600] yes" in reference.render(tmp_path)[reference.TARGET]


def test_agreement_and_algorithms_are_read_from_the_runs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    reference = import_module("baseline_reference")
    page = reference.render(RUNS)[reference.TARGET]
    agree, _, algorithms = page.partition("## Do the trainers agree?")[2].partition(
        "## ReBN against REINFORCE"
    )
    for name in ("guess-the-number-easy", "tower-of-hanoi-easy", "mastermind-easy", "sudoku-easy"):
        assert f"| `{name}` | oat, openrlhf, rl2, trl |" in agree
        assert f"| `{name}` | trl, verl |" in agree
        assert f"| `{name}` | 0 |" in algorithms
    assert "All trainers: over the 4 baselines that all 5 trainers finished" in agree
    assert "Without verl, whose rate differs: over the 4 baselines that all 4 trainers" in agree
    assert agree.count("p = ") + agree.count("p < ") == 2
    assert "`leg-counting` (rebn) 6 of 6 same steps" in agree  # with a constant rate
    none = reference.render(tmp_path)[reference.TARGET]
    assert "No baseline has runs of two trainers." in none
    assert "ReBN against REINFORCE" not in none


def test_the_extra_algorithms_have_a_table_of_their_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    reference = import_module("baseline_reference")
    for algorithm in ("rebn", "grpo"):
        target = tmp_path / "sudoku-easy" / "trl" / algorithm / "seed0"
        shutil.copytree(RUNS / "sudoku-easy" / "trl" / "rebn" / "seed0", target)
    page = reference.render(tmp_path)[reference.TARGET]
    table = page.partition("## Four algorithms")[2]
    assert "| `sudoku-easy` | grpo | 0.000 [0.000, 0.107] | missing |" in table
    assert "| `sudoku-easy` | ppo | missing | missing |" in table
    assert "## Four algorithms" not in reference.render(tmp_path / "none")[reference.TARGET]
