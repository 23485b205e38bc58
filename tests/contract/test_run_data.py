"""Every process of a run, in the trainer under test, refuses to play other data than recorded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from pathlib import Path
from gem_core.envs import _data_source
from gem_core.runs.launch import launch
from gem_core.runs.resolved import read_resolved
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.environments.description import in_run
from gem_core.runs.directory.run_dir import RunDir

def write(path, total):
    rows = [f'{{"problem": "{n} + {total}?", "answer": "{n + total}"}}' for n in range(9)]
    path.write_text("\\n".join(rows))

if __name__ == "__main__":
    trainer, folder = sys.argv[1], Path(sys.argv[2])
    data = folder / "rows.jsonl"
    write(data, 2)
    table = f"env=[{{id='qa:HotpotQA', kwargs={{dataset='{data}'}}}}]"
    small = ["model.tiny.warm_start_steps=0", "train.steps=1", "batch.episodes=4"]
    small += ["eval.episodes=0"]
    recipe = load_recipe("guess-the-number-easy", "tiny", [table, *small])
    run = RunDir.create(folder / "run", recipe, trainer)
    with in_run(run):
        write(folder / "other.jsonl", 3)
        os.replace(folder / "other.jsonl", data)  # this process goes on with what it has read
        if trainer in ("trl", "oat"):  # one process on a CPU: let it read the file again
            _data_source._tables.clear()
        launch(read_resolved(run), run)
"""
"""Records the data of a run, replaces them and trains."""


@pytest.mark.slow("oat", "openrlhf", "rl2", "verl")
def test_a_worker_with_other_data_ends_the_run(trainer_name, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), trainer_name, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=800,
        env=dict(os.environ),
    )
    output = done.stdout + done.stderr
    assert done.returncode != 0, output[-2000:]
    assert "DataError: qa:HotpotQA: " in output, output[-4000:]
    assert "and this process differ: it was recorded with the data 'sha256-" in output
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
