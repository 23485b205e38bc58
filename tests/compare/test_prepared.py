"""Cells that begin as copies of one process that has imported what they need."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gem_compare.prepared import PreparedProcess, PreparedProcesses

CLI = "gem_core.cli"
SHOW = ("show", "guess-the-number-easy", "--profile", "tiny")
SLOW = """
import sys, threading, time
from pathlib import Path
Path(sys.modules[__name__].__file__).with_suffix(".imports").open("a").write("x")
"""


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """``prepared(*modules)``: a prepared process that finds modules in ``tmp_path``."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = []

    def make(*modules):
        made.append(PreparedProcess(sys.executable, (CLI, *modules)))
        return made[-1]

    yield make
    for process in made:
        process.close()


def run(process, path, arguments=SHOW):
    with path.open("ab") as log, path.with_suffix(".lock").open("a") as lock:
        cell = process.start((CLI, *arguments), log.fileno(), lock.fileno())
        return cell, None if cell is None else cell.wait(60)


def test_a_copy_prints_and_ends_like_a_program_of_its_own(prepared, tmp_path):
    process = prepared()
    _, code = run(process, tmp_path / "log")
    alone = subprocess.run([sys.executable, "-m", CLI, *SHOW], capture_output=True, check=True)
    assert code == 0 and (tmp_path / "log").read_bytes() == alone.stdout
    _, code = run(process, tmp_path / "bad", ("show", "no-such-baseline"))
    assert code == 2 and b"no-such-baseline" in (tmp_path / "bad").read_bytes()


def test_what_is_shared_is_imported_once(prepared, tmp_path):
    (tmp_path / "shared_part.py").write_text(SLOW)
    process = prepared("shared_part")
    cells = [run(process, tmp_path / f"log{n}")[0] for n in range(3)]
    assert len({cell.pid for cell in cells}) == 3
    assert (tmp_path / "shared_part.imports").read_text() == "x"


@pytest.mark.parametrize(
    "text",
    [
        "raise ImportError('not here')",
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    ],
)
def test_modules_that_cannot_be_shared_are_not(prepared, tmp_path, text):
    (tmp_path / "not_shared.py").write_text(text)
    cell, _ = run(prepared("not_shared"), tmp_path / "log")
    assert cell is None


def test_a_killed_cell_is_over_and_its_lock_is_free(prepared, tmp_path):
    process = prepared()
    path = tmp_path / "lock"
    with path.open("a") as lock, (tmp_path / "log").open("ab") as log:
        fcntl.flock(lock, fcntl.LOCK_EX)
        serve = ("serve", "--port", "0")
        cell = process.start((CLI, *serve), log.fileno(), lock.fileno())
    with pytest.raises(subprocess.TimeoutExpired):
        cell.wait(0.2)
    with path.open("a") as again, pytest.raises(BlockingIOError):
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert os.getsid(cell.pid) == cell.pid
    os.kill(cell.pid, 9)
    assert cell.wait(10) == -9
    with path.open("a") as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert run(process, tmp_path / "next")[1] == 0


def test_closing_ends_the_process_and_a_dead_one_starts_nothing(tmp_path):
    with PreparedProcesses() as processes:
        process = processes.get(sys.executable, (CLI,))
        assert processes.get(sys.executable, (CLI,)) is process
        assert run(process, tmp_path / "log")[1] == 0
        pid = process._process.pid
        os.kill(pid, 9)
        deadline = time.monotonic() + 10
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert run(process, tmp_path / "log2")[0] is None
    assert not Path(f"/proc/{pid}").exists()
