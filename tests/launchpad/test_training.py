"""Whole trainings of Oat under the real dm-launchpad: ``make test-launchpad`` (Python 3.10).

Oat's program, shared memory, DeepSpeed and broadcast of weights are real, too; gem_core's engine
stands in for vLLM, so that a run has the figures of one in a single process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gem_core.runs.directory.run_dir import RunDir
from gem_core.training.stopping import EXIT_CODE, stopped_step
from gem_oat.values import REAL_VARIABLE

pytestmark = pytest.mark.slow
MARK = "GEM_OAT_LAUNCHPAD_TEST"
NODE = "launchpad/nodes/python/process_entry.py"
STEPS = 6
KEYS = (
    f"train.steps={STEPS}",
    "train.save_every=2",
    "train.log_episodes=2",
    "batch.episodes=8",
    "algorithm.epochs=1",
    "eval.every=3",
    "eval.episodes=16",
    "eval.inside_episodes=4",
    "limits.max_turns=4",
    "model.tiny.warm_start_steps=40",
    "trainer.oat.shm_size_mb=200",
)


@pytest.fixture
def train(tmp_path):
    """``train(name, *arguments)``: ``gem-core train`` into a folder; what it leaves is killed."""
    started = []

    def start(name, *arguments, real="launchpad"):
        environ = {
            **os.environ,
            REAL_VARIABLE: real,
            MARK: str(tmp_path),
            "USE_TF": "0",  # of TensorFlow only the library that launchpad needs is complete here
        }
        command = [sys.executable, "-m", "gem_core.cli", "train", "guess-the-number-easy"]
        command += ["--profile", "tiny", "--trainer", "oat", "--run", str(tmp_path / name)]
        command += [part for key in KEYS for part in ("--set", key)]
        output = (tmp_path / f"{name}.log").open("ab")
        process = subprocess.Popen(
            [*command, *arguments], env=environ, stdout=output, stderr=subprocess.STDOUT
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
    for pid in left(tmp_path):
        os.kill(pid, signal.SIGKILL)


def left(tmp_path):
    """Process id -> command line of what a training started and that is still there."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={tmp_path}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(entry.name)] = line.decode(errors="replace")
        except OSError:  # it is gone
            continue
    return found


def gone(tmp_path, seconds=40):
    """Wait for the end of all processes; return those that are left."""
    until = time.monotonic() + seconds
    while left(tmp_path) and time.monotonic() < until:
        time.sleep(0.1)
    return left(tmp_path)


def wait_for_step(run, step, process):
    until = time.monotonic() + 400
    while len(run.metrics()) < step:
        assert process.poll() is None and time.monotonic() < until, "no step"
        time.sleep(0.02)


def log(tmp_path, name):
    return (tmp_path / f"{name}.log").read_text(errors="replace")[-4000:]


def figures(run):
    """What every training step measured, but for times."""
    return [
        {name: value for name, value in row.items() if not name.startswith("time")}
        for row in run.metrics()
    ]


def test_a_run_ends_with_the_result_of_a_run_in_one_process(train, tmp_path):
    process = train("run")
    run, alone = RunDir(tmp_path / "run"), RunDir(tmp_path / "alone")
    wait_for_step(run, 1, process)
    lines = left(tmp_path).values()
    nodes = [line for line in lines if NODE in line and "run_locally" not in line]  # nor its shell
    assert len(nodes) == 3, "shared memory, actor and learner are processes of launchpad's"
    assert process.wait(400) == 0, log(tmp_path, "run")
    assert gone(tmp_path) == {}
    assert train("alone", real="").wait(400) == 0, log(tmp_path, "alone")
    assert len(run.metrics()) == STEPS
    for mine, theirs in zip(figures(run), figures(alone), strict=True):
        assert mine == {name: pytest.approx(value, nan_ok=True) for name, value in theirs.items()}
    for name in ("before", "after"):
        same = run.result[name]["success/mean"], run.result[name]["reward/mean"]
        assert same == (
            alone.result[name]["success/mean"],
            alone.result[name]["reward/mean"],
        )
    assert [row["step"] for row in run.evals()] == [row["step"] for row in alone.evals()] != []


def test_sigterm_saves_and_ends_it_and_resume_finishes_it(train, tmp_path):
    process = train("run")
    run = RunDir(tmp_path / "run")
    wait_for_step(run, 1, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == EXIT_CODE, log(tmp_path, "run")
    last = stopped_step(run)
    assert last is not None and 1 <= last < STEPS
    assert run.metrics()[-1]["step"] == last and not run.model.exists()
    assert (run.checkpoints / "policy" / f"step_{last:06d}").is_dir()
    assert gone(tmp_path) == {}
    assert train("run", "--resume").wait(400) == 0, log(tmp_path, "run")
    assert [row["step"] for row in run.metrics()] == list(range(1, STEPS + 1))
    assert run.finished and gone(tmp_path) == {}


def test_a_killed_command_and_launchpad_leave_nothing(train, tmp_path):
    """The nodes are nobody's children then: only the watchdog ends them."""
    process = train("run")
    run = RunDir(tmp_path / "run")
    wait_for_step(run, 1, process)
    (program,) = [pid for pid, line in left(tmp_path).items() if "gem_oat.program" in line]
    for pid in (program, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert gone(tmp_path) == {}
    assert not run.model.exists() and not run.finished


def test_a_killed_command_leaves_nothing_and_resume_finishes_it(train, tmp_path):
    process = train("run")
    run = RunDir(tmp_path / "run")
    wait_for_step(run, 3, process)
    process.kill()
    process.wait()
    assert gone(tmp_path) == {}
    assert not run.model.exists() and not run.finished
    assert train("run", "--resume").wait(400) == 0, log(tmp_path, "run")
    assert [row["step"] for row in run.metrics()] == list(range(1, STEPS + 1))
    assert run.finished and gone(tmp_path) == {}
