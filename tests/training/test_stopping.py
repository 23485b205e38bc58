"""Saving by time, and SIGTERM: save and end."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

from gem_core.errors import RunError
from gem_core.runs.directory.run_dir import STOP_FILE, STOPPED_FILE, RunDir
from gem_core.runs.program import run_process
from gem_core.runs.recipe.load import load_recipe
from gem_core.training import stopping
from gem_core.training.stopping import (
    RunStopped,
    SaveClock,
    mark_stopped,
    stop_on_sigterm,
    stop_requested,
    stopped_step,
)


@pytest.fixture
def make_run(tmp_path):
    """``make_run(*overrides)``: a run directory of ten steps."""

    def make(*overrides):
        recipe = load_recipe("guess-the-number-easy", "tiny", ["train.steps=10", *overrides])
        return RunDir.create(tmp_path / "run", recipe, "trl")

    return make


@pytest.fixture
def now(monkeypatch):
    """The clock's minutes, which the test sets."""
    minutes = [0.0]
    monkeypatch.setattr(stopping.time, "monotonic", lambda: 60 * minutes[0])
    return minutes


def test_the_clock_saves_by_steps_and_by_minutes_since_the_last_checkpoint(make_run, now):
    clock = SaveClock(make_run("train.save_every=4", "train.save_minutes=5"))
    saved = []
    for step, minute in enumerate([1, 2, 6, 7, 8, 11.9, 12, 13, 17, 18], 1):
        now[0] = minute
        decision = clock.after(step)
        assert not decision.stop
        if decision.save:
            saved.append(step)
    assert saved == [3, 4, 7, 8, 10]  # 6, 7 (steps), 12, 13 (steps), 18 minutes


@pytest.mark.parametrize("every, expected", [(0, []), (3, [3, 6, 9])])
def test_no_minutes_save_by_steps_only(make_run, now, every, expected):
    clock = SaveClock(make_run(f"train.save_every={every}", "train.save_minutes=0"))
    saved = []
    for step in range(1, 11):
        now[0] += 100
        if clock.after(step).save:
            saved.append(step)
    assert saved == expected


def test_a_request_saves_and_ends_unless_it_was_the_last_step(make_run):
    run = make_run("train.save_every=0")
    clock = SaveClock(run)
    assert clock.after(1) == (False, False)
    (run.path / STOP_FILE).touch()
    assert clock.after(2) == (True, True)
    assert clock.after(10) == (False, False)


def test_a_stop_survives_being_sent_between_processes(make_run):
    run = make_run()
    (run.path / STOP_FILE).touch()
    stopped = mark_stopped(run, 4)
    assert not stop_requested(run) and stopped_step(run) == 4
    again = pickle.loads(pickle.dumps(stopped))
    assert isinstance(again, RunStopped) and again.step == 4
    assert str(again) == str(stopped)
    assert "after step 4 of 10" in str(stopped) and "--resume" in str(stopped)


def test_sigterm_asks_for_a_stop_and_what_training_did_is_reported(make_run):
    run = make_run()
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RunStopped, match="step 3 of 10"), stop_on_sigterm(run):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop_requested(run)
        mark_stopped(run, 3)
    assert signal.getsignal(signal.SIGTERM) is before
    # A new session begins without the request and the mark of the last one.
    with stop_on_sigterm(run):
        assert not stop_requested(run) and stopped_step(run) is None


def test_a_trainer_that_ends_with_an_error_was_stopped_if_it_said_so(make_run):
    run = make_run()
    with pytest.raises(RunStopped) as caught, stop_on_sigterm(run):
        mark_stopped(run, 5)
        raise RunError("no model")
    assert str(caught.value.__cause__) == "no model"
    with pytest.raises(RunError, match="no model"), stop_on_sigterm(run):
        raise RunError("no model")


def test_a_signal_after_the_last_step_ends_the_run_too(make_run):
    with pytest.raises(RunStopped, match="step 10 of 10"), stop_on_sigterm(make_run()):
        os.kill(os.getpid(), signal.SIGTERM)


def test_the_second_signal_ends_at_once(make_run):
    with pytest.raises(SystemExit) as caught, stop_on_sigterm(make_run()):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 143


def test_a_library_does_not_take_the_signal_away(make_run):
    """As Ray's ``init`` and launchpad's ``launch`` do."""
    run = make_run()
    seen = []
    with pytest.raises(RunStopped), stop_on_sigterm(run):
        signal.signal(signal.SIGTERM, lambda *_: seen.append("theirs"))
        signal.signal(signal.SIGUSR1, lambda *_: seen.append("usr1"))
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop_requested(run)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    assert seen == ["usr1"]


def test_a_forked_child_still_ends(make_run):
    run = make_run()
    with stop_on_sigterm(run):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        time.sleep(0.2)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 143
        assert not stop_requested(run)


def test_outside_of_the_main_thread_the_file_is_enough(make_run):
    run = make_run()
    caught = []

    def work():
        try:
            with stop_on_sigterm(run):
                (run.path / STOP_FILE).touch()
        except RunStopped as stopped:
            caught.append(stopped)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1


PARENT = """
import sys
from gem_core.runs.program import run_process
from gem_core.runs.directory.run_dir import RunDir
from gem_core.training.stopping import stop_on_sigterm
with stop_on_sigterm(RunDir(sys.argv[1])):
    print("code", run_process([sys.executable, "-c", sys.argv[2]]), flush=True)
"""
CHILD = """
import time
print("begun", flush=True)
time.sleep(2)
print("done", flush=True)
"""


def test_a_signal_for_the_group_reaches_the_launcher_only(make_run):
    run = make_run()
    command = [sys.executable, "-c", PARENT, str(run.path), CHILD]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "begun\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.stdout.read() == "done\ncode 0\n"
    assert (run.path / STOP_FILE).exists() and not (run.path / STOPPED_FILE).exists()


def test_a_program_ends_when_its_launcher_is_killed(make_run, tmp_path):
    run = make_run()
    mark = tmp_path / "mark"
    child = "import time, pathlib; print('begun', flush=True); time.sleep(3); "
    child += f"pathlib.Path({str(mark)!r}).touch()"
    command = [sys.executable, "-c", PARENT, str(run.path), child]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.kill()
        process.wait()
        time.sleep(3.5)
    assert not mark.exists()


def test_a_program_returns_its_exit_code():
    assert run_process([sys.executable, "-c", "raise SystemExit(3)"]) == 3
