"""Seconds over the sessions of a run, and what a script's block does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from gem_core.errors import RunError
from gem_core.runs.directory.lock import exclusive
from gem_core.runs.directory.run_dir import SESSIONS_FILE, RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.experiment import training
from gem_core.training.sessions import SessionLog, read_sessions, recorded, total_seconds
from gem_core.training.stopping import EXIT_CODE, RunStopped, mark_stopped

RECIPE = load_recipe("guess-the-number-easy", "tiny", ["train.steps=10"])


@pytest.fixture
def run(tmp_path):
    return RunDir.create(tmp_path / "run", RECIPE, "trl")


def write(run, *lines):
    """Lines of the sessions as other processes wrote them."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run.path / SESSIONS_FILE).write_text(text)


def begin(when):
    return {"event": "begin", "time": when, "command": ["x"], "commit": "c", "versions": {}}


def phase(when, name, seconds):
    return {"event": "phase", "time": when, "phase": name, "seconds": seconds}


def metrics(run, *times):
    lines = [{"step": step, "time": when} for step, when in enumerate(times, 1)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run.path / "metrics.jsonl").write_text(text)


def test_a_session_records_its_phases_its_commit_and_its_end(run):
    with recorded(run) as session:
        with session.phase("eval_before"):
            pass
        for _ in range(2):
            with session.phase("train"):
                pass
    (read,) = read_sessions(run)
    assert read.outcome == "finished" and not read.estimated
    assert set(read.seconds) == {"eval_before", "train"}
    assert read.command == sys.argv and read.versions["gem-core"]
    assert read.summary().keys() == {"outcome", "commit", "seconds", "estimated"}


@pytest.mark.parametrize(
    "error, outcome",
    [
        (RunStopped("r", 3, 10), "stopped"),
        (RunError("out of luck"), "failed: RunError: out of luck"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_a_session_records_how_it_ended_and_the_seconds_of_the_phase(run, error, outcome):
    with pytest.raises(type(error)), recorded(run) as session, session.phase("train"):
        raise error
    (read,) = read_sessions(run)
    assert read.outcome == outcome and "train" in read.seconds


def test_seconds_are_those_of_all_sessions_and_of_a_killed_one_up_to_its_last_step(run):
    first = [begin(100.0), phase(110.0, "eval_before", 9.0)]  # trains from 110 and is killed
    second = [begin(200.0), phase(240.0, "train", 39.0), phase(245.0, "eval_after", 5.0)]
    write(run, *first, *second, {"event": "end", "time": 245.0, "outcome": "finished"})
    metrics(run, 120.0, 131.5, 210.0, 230.0)
    killed, finished = read_sessions(run)
    assert (killed.outcome, killed.estimated, killed.ended) == ("killed", True, 131.5)
    assert killed.seconds == {"eval_before": 9.0, "train": 21.5}
    assert finished.seconds == {"train": 39.0, "eval_after": 5.0} and not finished.estimated
    total = total_seconds([killed, finished])
    assert total == {"eval_before": 9.0, "train": 60.5, "eval_after": 5.0}


def test_a_session_that_was_killed_before_its_first_step_has_no_estimate(run):
    write(run, begin(100.0), phase(110.0, "eval_before", 9.0), begin(200.0))
    metrics(run, 210.0, 220.0)
    first, second = read_sessions(run)
    assert first.seconds == {"eval_before": 9.0} and not first.estimated
    assert second.seconds == {"train": 20.0} and second.estimated


def test_work_from_before_there_were_sessions_counts_as_a_killed_one(run):
    started = run.info["started"] - 100
    (run.path / "run.json").write_text(json.dumps({**run.info, "started": started}))
    metrics(run, started + 5, started + 7)
    SessionLog(run).end("finished")
    earlier, mine = read_sessions(run)
    assert earlier.outcome == "killed" and earlier.estimated
    assert earlier.seconds["train"] == pytest.approx(7)
    assert earlier.commit == run.info["commit"]
    assert mine.outcome == "finished" and mine.seconds == {}


def test_a_run_without_sessions_has_none(run):
    assert read_sessions(run) == []


def test_a_cut_last_line_of_a_killed_session_is_left_out(run):
    write(run, begin(100.0), phase(110.0, "eval_before", 9.0))
    with (run.path / SESSIONS_FILE).open("a") as file:
        file.write('{"event": "pha')
    assert read_sessions(run)[0].seconds == {"eval_before": 9.0}
    RunDir.create(run.path, RECIPE, "trl", "resume")
    SessionLog(run)
    assert len(read_sessions(run)) == 2


def test_a_script_locks_its_run_and_ends_with_a_code_of_its_own(tmp_path, capsys):
    path = tmp_path / "run"
    with training(path, RECIPE, "trl") as run:
        with pytest.raises(RunError, match="in use"), exclusive(path):
            raise AssertionError("two processes hold the lock")
        run.log(1, {"x": 1.0})
    with pytest.raises(RunError, match="--resume"), training(path, RECIPE, "trl"):
        raise AssertionError("an existing run was opened")
    with pytest.raises(SystemExit) as caught, training(path, RECIPE, "trl", resume=True) as run:
        raise mark_stopped(run, 2)
    assert caught.value.code == EXIT_CODE
    assert "after step 2 of 10" in capsys.readouterr().err
    assert [session.outcome for session in read_sessions(run)] == ["finished", "stopped"]


def test_a_process_of_torchrun_leaves_the_run_to_its_launcher(tmp_path, monkeypatch):
    run = RunDir.create(tmp_path / "run", RECIPE, "trl")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    with exclusive(run.path):
        with training(run.path, RECIPE, "trl", resume=True) as mine:
            assert mine.path == run.path
        with pytest.raises(SystemExit) as caught, training(run.path, RECIPE, "trl", resume=True):
            raise mark_stopped(run, 2)
    assert caught.value.code == 0
    assert read_sessions(run) == []


SCRIPT = """
import sys, time
from gem_core.training.experiment import training
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.stopping import SaveClock, mark_stopped
recipe = load_recipe("guess-the-number-easy", "tiny", ["train.steps=1000"])
with training(sys.argv[1], recipe, "trl") as run:
    clock = SaveClock(run)
    for step in range(1, 1001):
        time.sleep(0.05)
        run.log(step, {"x": 1.0})
        print(step, flush=True)
        if clock.after(step).stop:
            raise mark_stopped(run, step)
"""


@pytest.mark.parametrize(
    "number, outcome", [(signal.SIGTERM, "stopped"), (signal.SIGKILL, "killed")]
)
def test_a_signal_to_a_real_process(tmp_path, number, outcome):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(number)
        _, errors = process.communicate()
    run = RunDir(tmp_path / "run")
    (session,) = read_sessions(run)
    assert session.outcome == outcome
    assert session.estimated == (outcome == "killed")
    assert 0.1 < session.seconds["train"] < 5
    if outcome == "stopped":
        assert process.returncode == EXIT_CODE
        assert "SIGTERM: training saves a checkpoint" in errors
        assert f"after step {run.metrics()[-1]['step']} of 1000" in errors
