"""A replacement for the cell's command: a short script that writes a run as a trainer does."""

from __future__ import annotations

import json
import sys

import pytest

from gem_compare import runner
from gem_compare.grid import Cell

SCRIPT = """
import json, os, pathlib, subprocess, sys, time
run, behaviour = pathlib.Path(sys.argv[1]), sys.argv[2]
run.mkdir(parents=True, exist_ok=True)
with (run / "starts").open("a") as file:
    file.write(f"{os.getpid()}\\n")
(run / "recipe.json").write_text(sys.argv[3])
(run / "run.json").write_text(json.dumps({"trainer": "trl"}))
if behaviour == "fails":
    print("something happened")
    sys.exit("RuntimeError: out of luck")
if behaviour == "hangs":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    (run / "child").write_text(str(child.pid))
    time.sleep(300)
if behaviour in ("rests", "trains long"):
    seconds = 0.1 if behaviour == "rests" else 9.0
    with (run / "metrics.jsonl").open("w") as file:
        file.write(json.dumps({"step": 1, "time/step": seconds}) + "\\n")
    time.sleep(2.0 if behaviour == "rests" else 300)
if behaviour == "slow":
    time.sleep(1.0)
seed = int(run.name.removeprefix("seed"))
with (run / "metrics.jsonl").open("w") as file:
    for step in range(1, 4):
        file.write(json.dumps({"step": step, "success/mean": 0.2 * step + 0.05 * seed,
                               "tokens/action": 10.0 + step}) + "\\n")
evaluation = lambda x: {"success/mean": x, "success/low": x - 0.04, "success/high": x + 0.04}
(run / "result.json").write_text(json.dumps({
    "format": 1, "before": evaluation(0.4), "after": evaluation(0.8 + 0.05 * seed),
    "steps": 3, "episodes": 24,
    "seconds": {"train": 6.0, "rollout": 3.0, "update": 1.5}, "versions": {"gem-core": "0.1.0"},
    "python": "3.11", "hardware": {"processor": "cpu", "cores": 2, "gpus": []},
}))
"""


@pytest.fixture
def cells():
    """Six cells: two trainers, three seeds."""
    return [
        Cell("guess-the-number-easy", trainer, "rebn", seed)
        for trainer in ("trl", "oat")
        for seed in (0, 1, 2)
    ]


@pytest.fixture
def behave(monkeypatch):
    """``behave(part, behaviour)``: sets the behaviour of cells whose name contains ``part``."""
    rules = {}

    def command(cell, plan):
        (behaviour,) = [b for part, b in rules.items() if part in cell.name] or ["trains"]
        recipe = json.dumps(cell.recipe(plan.profile, plan.extra).to_dict())
        return [sys.executable, "-c", SCRIPT, str(plan.directory(cell)), behaviour, recipe]

    monkeypatch.setattr(runner, "command", command)
    return rules.__setitem__


@pytest.fixture
def starts():
    """How often a cell's command was started."""

    def count(plan, cell):
        path = plan.directory(cell) / "starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    return count
