"""What a run of Oat started is ended with it, however it ends; plain processes for the nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gem_oat.nodes import run_watched
from gem_oat.watchdog import VARIABLE, marked

PROGRAM = Path(__file__).with_name("stubborn_nodes.py")
"""Starts two nodes, one in a session of its own that ignores SIGTERM, and writes the mark."""


def left(folder):
    mark = (folder / "mark").read_text()
    return marked(mark)


def wait_for(path, seconds=20):
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"no {path}"
        time.sleep(0.02)


@pytest.mark.parametrize(("how", "code"), [("end", 0), ("fail", 3), ("kill", -signal.SIGKILL)])
def test_no_node_is_left(tmp_path, how, code):
    began = time.monotonic()
    assert run_watched([sys.executable, str(PROGRAM), str(tmp_path), how], grace=0.3) == code
    assert left(tmp_path) == []
    assert (tmp_path / "asked").exists(), "the node was not asked before it was ended"
    assert time.monotonic() - began < 20


def test_no_node_is_left_when_the_launching_process_is_killed(tmp_path):
    """Without SIGTERM to the nodes' own session, and without anybody who could clean up."""
    run = (
        "import sys; from gem_oat.nodes import run_watched; "
        "run_watched([sys.executable, *sys.argv[1:]], grace=0.3)"
    )
    command = [sys.executable, "-c", run, str(PROGRAM), str(tmp_path), "wait"]
    launcher = subprocess.Popen(command)
    wait_for(tmp_path / "mark")
    assert len(left(tmp_path)) >= 2
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    until = time.monotonic() + 20
    while left(tmp_path):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_only_processes_with_the_mark_are_found():
    environment = {**os.environ, VARIABLE: "a-mark"}
    other = {**os.environ, VARIABLE: "a-mark-of-another-run"}
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    processes = [subprocess.Popen(sleep, env=env) for env in (environment, other)]
    try:
        time.sleep(0.2)
        assert marked("a-mark") == [processes[0].pid]
    finally:
        for process in processes:
            process.kill()
            process.wait()
