"""The real dm-launchpad, under the launcher of gem_oat: ``make test-launchpad`` (Python 3.10)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("real_nodes.py")
LAUNCHER = """
import sys
from gem_oat.nodes import run_watched
sys.exit(run_watched([sys.executable, *sys.argv[1:]], grace=1.0))
"""


@pytest.fixture
def launch(tmp_path):
    """Start the launcher; kill what a failed test leaves."""
    started = []

    def start(*how):
        command = [sys.executable, "-c", LAUNCHER, str(PROGRAM), str(tmp_path), *how]
        process = subprocess.Popen(command)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()


def wait_for(path, process):
    until = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None and time.monotonic() < until, f"no {path.name}"
        time.sleep(0.05)


def alive(tmp_path):
    """The nodes that are still there."""
    pids = [int((tmp_path / name).read_text()) for name in ("actor", "learner")]
    return [pid for pid in pids if running(pid)]


def running(pid):
    """Whether a process is there and no zombie, which only waits for init to read its exit code."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def gone(tmp_path, seconds):
    until = time.monotonic() + seconds
    while alive(tmp_path) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(tmp_path)


def test_it_returns_when_the_training_is_over(launch, tmp_path):
    began = time.monotonic()
    launch().wait(90)
    assert (tmp_path / "result").read_text() == "A"
    assert time.monotonic() - began > 3 and alive(tmp_path) == []


def test_a_node_that_does_not_stop_costs_no_result_and_stays_not(launch, tmp_path):
    """Launchpad kills its own process after ten seconds; the result was written before."""
    assert launch("stubborn").wait(90) == 256 - signal.SIGKILL
    assert (tmp_path / "result").read_text() == "A" and alive(tmp_path) == []


@pytest.mark.parametrize("how", ["fail", "learner dies", "actor dies"])
def test_a_failed_node_ends_the_program(launch, tmp_path, how):
    code = launch(how).wait(60)
    assert alive(tmp_path) == []
    if how == "fail":  # it stopped the program itself; a run is judged by its model
        assert not (tmp_path / "result").exists()
    else:
        assert code != 0


def test_a_killed_launcher_leaves_no_node(launch, tmp_path):
    process = launch()
    wait_for(tmp_path / "learner", process)
    os.kill(process.pid, signal.SIGKILL)
    assert gone(tmp_path, 15)
    assert not (tmp_path / "result").exists()


def test_a_killed_launchpad_leaves_no_node(launch, tmp_path):
    process = launch()
    wait_for(tmp_path / "learner", process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    launchpad = [
        int(pid) for pid in children if PROGRAM.name in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    os.kill(launchpad[0], signal.SIGKILL)
    assert process.wait(30) != 0 and gone(tmp_path, 5)
