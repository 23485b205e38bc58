"""``benchmarks/learn/run.py`` with real TRL: a cell of few steps, its file and the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[3] / "benchmarks" / "learn" / "run.py"
BASELINE = """
base = "games"
name = "{name}"

[[env]]
id = "game:{game}"
{kwargs}
[profiles.learn]
model.tiny = {{ pieces = "integers", warm_start_steps = 12, warm_start_batch = 16 }}
batch.episodes = 8
train.steps = 2
eval.episodes = 40
"""
KWARGS = "kwargs = { min_number = 1, max_number = 60, max_turns = 8, held_out = 0.5 }"
GOOD = "guess-the-number-easy"


def run(tmp_path, *options):
    command = [sys.executable, str(PROGRAM), "--seeds", "101", "--allow-dirty", *options]
    command += ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "out")]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)


def test_cells_are_measured_skipped_and_measured_again_after_a_change(tmp_path):
    files = {GOOD: ("GuessTheNumber-v0-easy", KWARGS), "broken": ("NoSuchGame-v0", "")}
    for name, (game, kwargs) in files.items():
        text = BASELINE.format(name=name, game=game, kwargs=kwargs)
        (tmp_path / f"{name}.toml").write_text(text)

    done = run(tmp_path, "--baselines", "broken.toml", f"{GOOD}.toml")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED broken/trl/rebn/seed101: " in done.stderr and "NoSuchGame" in done.stderr
    (file,) = (tmp_path / "results").rglob("*.json")  # the cell after the failed one, and no part
    assert file == tmp_path / "results" / GOOD / "trl" / "rebn" / "seed101.json"
    assert not (tmp_path / "out" / GOOD / "trl" / "rebn" / "seed101").exists()
    assert "NoSuchGame" in (tmp_path / "out/broken/trl/rebn/seed101/failed.json").read_text()

    cell = json.loads(file.read_text())
    outcomes = [*cell["before"].values(), *cell["after"].values(), *cell["controls"].values()]
    assert {len(outcome) for outcome in outcomes} == {40} and "1" in "".join(outcomes)
    assert len(cell["controls"]) == 5
    # The start of the controls is what the run evaluated, draw by draw.
    assert cell["controls"]["start_sampled"] == cell["before"]["sampled"]
    assert cell["controls"]["start_greedy"] == cell["before"]["greedy"]
    assert cell["eval_tasks"]["seen_in_training"] == 0 and cell["eval_tasks"]["distinct"] > 15
    assert len(set(cell["tokens"])) == len(cell["training"]) == cell["recipe"]["train"]["steps"]
    assert "seed=101" in cell["overrides"] and cell["seconds"]["total"] > cell["seconds"]["train"]
    row = next(line for line in page(tmp_path).splitlines() if line.startswith(f"| {GOOD} |"))
    assert "101; 0, 1, 2, 3, 4 missing" in row and "fewer than 100" in row

    again = run(tmp_path, "--baselines", f"{GOOD}.toml")
    assert again.returncode == 0 and "==>" not in again.stdout
    assert json.loads(file.read_text()) == cell

    failing = run(tmp_path, "--baselines", f"{GOOD}.toml", "--set", "hardware.device=gpu")
    assert "made of another recipe: it is measured again" in failing.stdout
    assert failing.returncode == 1 and "torch finds no GPU" in failing.stderr
    assert json.loads(file.read_text()) == cell


def page(tmp_path):
    return (tmp_path / "results" / "README.md").read_text()
