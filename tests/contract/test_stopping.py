"""SIGTERM in the middle of a real run, and checkpoints by time: the same in every trainer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from gem_core.runs.directory.run_dir import RunDir
from gem_core.training.sessions import read_sessions
from gem_core.training.stopping import EXIT_CODE, stopped_step

STEPS = 12
KEYS = (
    f"train.steps={STEPS}",
    "train.save_every=0",
    "train.keep_checkpoints=2",
    "train.log_episodes=0",
    "batch.episodes=6",
    "algorithm.epochs=1",  # TRL numbers its checkpoints by optimizer steps
    "eval.episodes=0",
    "limits.max_turns=4",
    "model.tiny.warm_start_steps=40",
    "sampling.top_k=1",  # whatever an engine draws from, it takes the most likely token
)


@pytest.fixture(scope="module")
def command(trainer_name):
    """``command(path, *keys)``: ``gem-core train`` of a small run."""

    def make(path, *keys):
        parts = [sys.executable, "-m", "gem_core.cli", "train", "guess-the-number-easy"]
        parts += ["--profile", "tiny", "--trainer", trainer_name, "--run", str(path)]
        return [*parts, *(part for key in (*KEYS, *keys) for part in ("--set", key))]

    return make


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    """An uninterrupted run that saves by time: after every step."""
    path = tmp_path_factory.mktemp("whole") / "run"
    finish(command(path, "train.save_minutes=1e-6"))
    return RunDir(path)


@pytest.fixture(scope="module")
def stopped(command, tmp_path_factory):
    """A run that saves at its end only, sent SIGTERM after its second step."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    pipe = subprocess.PIPE
    arguments = command(path, "train.save_minutes=0")
    process = subprocess.Popen(
        arguments, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 600
        while len(RunDir(path).metrics()) < 2:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return RunDir(path), arguments, process.returncode, output


def finish(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def saved_steps(run):
    """Training steps that have a checkpoint, read from the names of the directories."""
    folders = [path for path in run.checkpoints.glob("**/*step*") if path.is_dir()]
    folders += run.checkpoints.glob("checkpoint-*")
    return {int(re.search(r"(\d+)$", path.name)[1]) for path in folders}


@pytest.mark.slow("openrlhf", "rl2", "verl")
def test_checkpoints_are_written_by_time(whole):
    assert {STEPS - 1, STEPS} <= saved_steps(whole)


@pytest.mark.slow("openrlhf", "rl2", "verl")
def test_sigterm_loses_no_step_and_the_curve_goes_on(whole, stopped):
    run, arguments, code, output = stopped
    assert code == EXIT_CODE, output[-4000:]
    last = stopped_step(run)
    assert 2 <= last < STEPS and f"after step {last} of {STEPS}" in output
    assert run.metrics()[-1]["step"] == last
    assert saved_steps(run) == {last}
    assert not run.finished and not run.model.exists()

    finish([*arguments, "--resume"])
    assert [row["step"] for row in run.lines("metrics.jsonl")] == list(range(1, STEPS + 1))
    for mine, theirs in zip(run.metrics(), whole.metrics(), strict=True):
        names = [name for name in theirs if not name.startswith("time")]
        figures = [(name, mine[name]) for name in names]
        assert figures == [
            (name, pytest.approx(theirs[name], rel=1e-3, abs=1e-5)) for name in names
        ]
    first, second = read_sessions(run)
    assert (first.outcome, second.outcome) == ("stopped", "finished")
    result = run.result
    assert [session["outcome"] for session in result["sessions"]] == ["stopped", "finished"]
    expected = first.seconds["train"] + second.seconds["train"]
    assert result["seconds"]["train"] == pytest.approx(expected, abs=0.01)
