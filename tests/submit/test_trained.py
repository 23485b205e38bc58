"""A grid of real trainings, in the environment of TRL: one is killed in the middle and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from submit_grid import GUESS, until

from gem_compare.runner import trainer_python
from gem_core.cli import main
from gem_core.errors import MissingDependencyError
from gem_core.runs.directory.run_dir import RunDir

pytest.importorskip("submitit", reason="the extra slurm")
pytest.importorskip("matplotlib", reason="the report of compare")

SMALL = (
    *("train.steps=4", "train.save_every=1", "eval.episodes=0"),
    *("batch.episodes=16", "model.tiny.warm_start_steps=5"),
)


def command(out: Path) -> list[str]:
    words = [sys.executable, "-m", "gem_core.cli", "submit", GUESS, "--trainers", "trl"]
    words += ["--seeds", "0", "1", "--profile", "tiny", "--cluster", "local", "--out", str(out)]
    return words + [word for text in SMALL for word in ("--set", text)]


def steps(run: RunDir) -> list[int]:
    """The steps in the order in which they were trained, also those that were trained again."""
    path = run.path / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("\n")]


@pytest.mark.slow
def test_a_training_that_is_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    try:
        trainer_python("trl")
    except MissingDependencyError as missing:
        pytest.skip(str(missing))
    out = tmp_path / "out"
    killed, other = (RunDir(out / GUESS / "trl" / "rebn" / f"seed{seed}") for seed in (0, 1))
    with subprocess.Popen(command(out), stdout=subprocess.PIPE, text=True) as first:
        until(lambda: len(steps(killed)) >= 2, 300)
        os.killpg(json.loads((killed.path / "run.lock").read_text())["pid"], signal.SIGKILL)
        said, _ = first.communicate(timeout=300)
    assert first.returncode == 1, said
    assert "2 cells: 1 finished, 1 stopped" in said
    assert other.finished and not killed.finished
    trained_before = len(steps(killed))
    again = subprocess.run(command(out), capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "seed0: goes on where it was stopped" in again.stdout
    assert "seed1: finished: not submitted" in again.stdout
    assert "2 cells: 1 finished, 1 stopped; 1 to submit" in again.stdout
    assert [row["step"] for row in killed.metrics()] == [1, 2, 3, 4]
    assert steps(killed)[trained_before] > 1  # it did not begin again
    assert main(["compare", "--report-only", "--out", str(out)]) == 0
    assert (killed.path / "log.txt").read_text().count("gem_core.cli train") == 2
