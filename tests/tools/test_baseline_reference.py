"""docs/baselines.md agrees with the suite, its recipes and the committed figures."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from gem_core.runs.recipe.suite import load_suite

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "baselines.md"
RUNS = ROOT / "benchmarks" / "suite" / "results"


def test_the_page_is_up_to_date():
    command = [sys.executable, "scripts/baseline_reference.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_baseline_has_a_line_of_scores():
    scores = PAGE.read_text(encoding="utf-8").partition("## The tiny profile")[2]
    for baseline in load_suite():
        assert f"| `{baseline.name}` |" in scores


@pytest.fixture
def reference(monkeypatch):
    """The module that writes the page."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return import_module("baseline_reference")


def copy_run(baseline, trainer, algorithm, results):
    """Copy a recorded run of ReBN to another folder of results, as one of an algorithm."""
    target = results / baseline / trainer / algorithm / "seed0"
    shutil.copytree(RUNS / baseline / trainer / "rebn" / "seed0", target)
    return target


def test_runs_and_missing_runs_are_told_apart(tmp_path, reference):
    run = copy_run("sokoban-easy", "trl", "rebn", tmp_path)
    page, svg = reference.render(tmp_path).values()
    (line,) = [row for row in page.splitlines() if row.count("*missing*") == 4]
    assert line.startswith("| `sokoban-easy` | 0.907 [0.868, 0.935] | 0.997 [0.981, 0.999] above |")
    assert "with a run: trl 1 of 1, verl 0 of 0" in page
    assert "rebn: 1 of 120 cells" in page and "reinforce: 0 of 120 cells" in page
    assert "trl 1.16.0" in page and "AMD EPYC, 2 cores, no GPU" in page
    assert svg.count("<polyline") == 1 and svg.count("no run") == 23
    worse = json.loads((run / "result.json").read_text())
    worse["after"].update({"success/mean": 0.9, "success/low": 0.85, "success/high": 0.95})
    (run / "result.json").write_text(json.dumps(worse))
    assert "0.900 [0.850, 0.950] not above" in reference.render(tmp_path)[reference.TARGET]


def test_the_page_says_first_that_these_runs_show_no_learning():
    section = PAGE.read_text(encoding="utf-8").partition("## Before and after training")[2]
    assert "Nothing in this section shows that a baseline learns" in section[:200]
    assert section.index("../benchmarks/learn/README.md") < section.index("| baseline |")


def test_agreement_and_algorithms_are_read_from_the_runs(tmp_path, reference):
    names = ("tower-of-hanoi-easy", "sokoban-easy")
    for name in names:
        for trainer in reference.TRAINERS:
            copy_run(name, trainer, "rebn", tmp_path)
        copy_run(name, "trl", "reinforce", tmp_path)
    page = reference.render(tmp_path)[reference.TARGET]
    agree, _, algorithms = page.partition("## Do the trainers agree?")[2].partition(
        "## ReBN against REINFORCE"
    )
    for name in names:
        assert f"| `{name}` | oat, openrlhf, rl2, trl |" in agree
        assert f"| `{name}` | trl, verl |" in agree
        assert f"| `{name}` | 0 |" in algorithms
    assert "All trainers: over the 2 baselines that all 5 trainers finished" in agree
    assert "Without verl, whose rate differs: over the 2 baselines that all 4 trainers" in agree
    assert agree.count("p = ") + agree.count("p < ") == 2
    assert "`leg-counting` (rebn) 6 of 6 same steps" in agree  # with a constant rate
    none = reference.render(tmp_path / "none")[reference.TARGET]
    assert "No baseline has runs of two trainers." in none
    assert "ReBN against REINFORCE" not in none


def test_ppo_has_a_table_of_its_own(tmp_path, reference):
    for algorithm in ("rebn", "ppo"):
        copy_run("sokoban-easy", "trl", algorithm, tmp_path)
    copy_run("sokoban-easy", "verl", "rebn", tmp_path)
    table = reference.render(tmp_path)[reference.TARGET].partition("## PPO beside ReBN")[2]
    figure = "0.997 [0.981, 0.999]"
    assert f"| `sokoban-easy` | rebn | {figure} | {figure} | *missing* |" in table
    assert f"| `sokoban-easy` | ppo | {figure} | *missing* | *missing* |" in table
    assert "## PPO beside ReBN" not in reference.render(tmp_path / "none")[reference.TARGET]
