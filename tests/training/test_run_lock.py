"""A run directory has one writer."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from gem_core.errors import RecipeError, RunError
from gem_core.runs.directory.lock import LOCK_FILE, exclusive
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.experiment import run_experiment

HOLD = """
import sys
from gem_core.runs.directory.lock import exclusive
with exclusive(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of ``tmp_path / "run"``."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_writer_is_refused_until_the_first_ends(tmp_path, holder):
    message = rf"run is in use by process {holder.pid} on .* since 20"
    with pytest.raises(RunError, match=message), exclusive(tmp_path / "run"):
        raise AssertionError("two processes hold the lock")
    holder.kill()
    holder.wait()
    with exclusive(tmp_path / "run"):
        assert (tmp_path / "run" / LOCK_FILE).exists()


FORK = """
import os, sys, time
from gem_core.runs.directory.lock import exclusive
with exclusive(sys.argv[1]):
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.read()
"""


def test_a_forked_child_does_not_keep_the_lock_of_a_killed_process(tmp_path):
    command = [sys.executable, "-c", FORK, str(tmp_path / "run")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        child = int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            with exclusive(tmp_path / "run"):
                os.kill(child, 0)  # it lives
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_directory_may_be_deleted_while_another_process_waits(tmp_path, monkeypatch):
    """The holder is refused its recipe, and deletes the directory that it had made."""
    first = exclusive(tmp_path / "run")
    first.__enter__()
    flock = fcntl.flock
    refused = []

    def refuse_the_holder(file, operation):
        try:
            flock(file, operation)
        except BlockingIOError:
            if not refused:
                refused.append(True)
                first.__exit__(KeyError, KeyError(), None)
            raise

    monkeypatch.setattr(fcntl, "flock", refuse_the_holder)
    with exclusive(tmp_path / "run"):
        assert refused and (tmp_path / "run" / LOCK_FILE).exists()


@pytest.mark.parametrize("if_exists", ["error", "resume", "overwrite"])
def test_an_experiment_leaves_the_run_of_another_process_alone(
    tmp_path, holder, if_exists, monkeypatch
):
    monkeypatch.setattr("gem_core.runs.trainers.require", lambda *_: None)
    recipe = load_recipe("guess-the-number-easy", "tiny")
    RunDir.create(tmp_path / "run", recipe, "trl").log(1, {"x": 1.0})
    with pytest.raises(RunError, match=f"process {holder.pid}"):
        run_experiment(recipe, "trl", tmp_path / "run", if_exists)
    assert len(RunDir(tmp_path / "run").metrics()) == 1


def test_overwriting_a_run_keeps_its_lock(tmp_path):
    recipe = load_recipe("guess-the-number-easy", "tiny")
    RunDir.create(tmp_path, recipe, "trl").log(1, {"x": 1.0})
    (tmp_path / "model").mkdir()
    with exclusive(tmp_path):
        run = RunDir.create(tmp_path, recipe, "trl", "overwrite")
        with pytest.raises(RunError, match="in use"), exclusive(tmp_path):
            raise AssertionError("the lock is gone")
    assert run.metrics() == [] and not run.model.exists()


def test_an_impossible_environment_is_refused_before_the_run_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("gem_core.runs.trainers.require", lambda *_: None)
    recipe = load_recipe("guess-the-number-easy", "tiny", ["env.0.kwargs.max_number=-5"])
    with pytest.raises(RecipeError, match=r"env\.0\.kwargs: game:GuessTheNumber-v0-easy: "):
        run_experiment(recipe, "trl", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_fails_leaves_a_directory_only_if_there_is_something_in_it(tmp_path):
    with pytest.raises(KeyError), exclusive(tmp_path / "empty"):
        raise KeyError
    assert not (tmp_path / "empty").exists()
    with pytest.raises(KeyError), exclusive(tmp_path / "run"):
        (tmp_path / "run" / "recipe.json").touch()
        raise KeyError
    assert (tmp_path / "run" / LOCK_FILE).exists()


def test_a_lock_whose_file_was_deleted_locks_nothing(tmp_path, monkeypatch):
    """A process opened the file, and its holder deleted it before the lock was free."""
    path = tmp_path / "run" / LOCK_FILE
    flock = fcntl.flock
    deleted = []

    def delete_first(file, operation):
        flock(file, operation)
        if not deleted:
            deleted.append(True)
            path.unlink()

    monkeypatch.setattr(fcntl, "flock", delete_first)
    with exclusive(path.parent):
        assert path.exists()
        with pytest.raises(RunError, match="in use"), exclusive(path.parent):
            raise AssertionError("two processes hold the lock")
