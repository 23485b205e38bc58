"""Oat's own program in three processes: shared memory, weight broadcast, an orderly end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import transformers

from gem_core.runs.directory.run_dir import RunDir

PROGRAM = Path(__file__).with_name("three_processes.py")


def processes_naming(word):
    """Command lines of the living processes that have ``word`` in them or their environment."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environ = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if word in line or word in environ:
            lines.append(line)
    return lines


def start(folder, *arguments):
    # Oat reads the variable as numbers, so the suite's empty one is no way to hide a GPU here.
    environ = {**os.environ, "GEM_OAT_TEST": str(folder), "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, str(PROGRAM), str(folder), *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=900)


@pytest.mark.slow
def test_three_processes_train_and_are_gone(tmp_path):
    done = start(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    run = RunDir(tmp_path / "run")
    assert [row["step"] for row in run.metrics()] == [1, 2]
    (during,) = run.evals()
    assert during["step"] == 2 and during["episodes"] == 4
    digests = (tmp_path / "digests").read_text().split()
    of_learner = digests[::2]
    of_actor = digests[1::2]
    assert of_learner == of_actor and len(set(of_learner)) == 2, "weights moved, and arrived"
    transformers.AutoModelForCausalLM.from_pretrained(run.model)
    assert processes_naming(f"GEM_OAT_TEST={tmp_path}") == []


@pytest.mark.slow
def test_a_failing_process_ends_all(tmp_path):
    done = start(tmp_path, "fail")
    assert done.returncode != 0
    assert "ended with code" in done.stderr
    assert processes_naming(f"GEM_OAT_TEST={tmp_path}") == []


def test_nodes_do_not_outlive_a_killed_launcher(tmp_path):
    environ = {**os.environ, "GEM_OAT_TEST": str(tmp_path), "CUDA_VISIBLE_DEVICES": "-1"}
    program = PROGRAM.with_name("sleeping_node.py")
    launcher = subprocess.Popen([sys.executable, str(program), str(tmp_path)], env=environ)
    try:
        patience = time.monotonic() + 120
        while not (tmp_path / "asleep").exists():
            assert launcher.poll() is None and time.monotonic() < patience
            time.sleep(0.1)
    finally:
        launcher.kill()
        launcher.wait()
    patience = time.monotonic() + 30
    while processes_naming(f"GEM_OAT_TEST={tmp_path}"):
        assert time.monotonic() < patience, processes_naming(f"GEM_OAT_TEST={tmp_path}")
        time.sleep(0.5)
