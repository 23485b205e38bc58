"""A grid on this machine: submitit's local executor with real processes, and in this process."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading
from pathlib import Path

import pytest
from submit_grid import Grid, until

from gem_core.cli import main
from gem_submit.job import TrainJob

pytest.importorskip("submitit", reason="the extra slurm")

Said = pytest.CaptureFixture[str]


@pytest.mark.parametrize("cluster", ["local", "debug"])
def test_cells_are_run_and_their_states_said(grid: Grid, capsys: Said, cluster: str) -> None:
    grid.behave(1, "fails")
    assert grid.submit(cluster=cluster, seeds=(0, 1, 2)) == 1
    said = capsys.readouterr().out
    assert "seed1: failed, RuntimeError: out of luck" in said
    assert "3 cells: 2 finished, 1 failed" in said
    assert json.loads((grid.folder(1) / "failed.json").read_text())["exit_code"] == 1
    assert [len(grid.starts(seed)) for seed in (0, 1, 2)] == [1, 1, 1]
    assert grid.submit(cluster=cluster, seeds=(0, 2)) == 0
    assert "2 cells: 2 finished; 0 to submit" in capsys.readouterr().out
    assert grid.status() == 0 and "3 cells: 2 finished, 1 failed" in capsys.readouterr().out


def test_cells_run_at_a_time_as_many_as_are_asked_for(
    grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gem_submit import launch

    counted: list[int] = []
    submit = launch.Jobs.submit

    def count(jobs: launch.Jobs, cells: list[object], notice_s: int) -> list[str]:
        counted.append(len(cells))
        return submit(jobs, cells, notice_s)

    monkeypatch.setattr(launch.Jobs, "submit", count)
    assert grid.submit("--at-most", "2", cluster="local", seeds=(0, 1, 2)) == 0
    assert counted[0] == 2 and sum(counted) == 3


def test_a_cell_killed_in_the_middle_goes_on(grid: Grid, capsys: Said) -> None:
    """The command is a process of its own; its job and its training are killed with SIGKILL."""
    grid.behave(0, "hangs")
    child = os.fork()
    if child == 0:
        os._exit(grid.submit(cluster="local", seeds=(0,)))
    until(lambda: grid.trains(0))
    assert grid.status() == 0 and "seed0: running, step 1 of 3" in capsys.readouterr().out
    assert main(["submit", "--status", str(grid.out.parent)]) == 2  # a folder above it
    for pid in grid.starts(0)[0].values():
        os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert not (grid.folder(0) / "result.json").exists()
    capsys.readouterr()
    assert grid.status() == 0 and "1 stopped" in capsys.readouterr().out
    assert grid.submit(cluster="local", seeds=(0,)) == 0
    said = capsys.readouterr().out
    assert "seed0: goes on where it was stopped" in said and "1 finished" in said
    assert len(grid.starts(0)) == 2


def test_the_signal_before_the_limit_makes_the_cell_go_on_by_itself(grid: Grid) -> None:
    grid.behave(0, "waits")
    child = os.fork()
    if child == 0:
        os._exit(grid.submit(cluster="local", seeds=(0,)))
    until(lambda: grid.trains(0))
    os.kill(grid.starts(0)[0]["job"], signal.SIGUSR2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(grid.starts(0)) == 2


def test_a_cell_that_reached_its_limit_too_often_is_stopped(grid: Grid, capsys: Said) -> None:
    grid.behave(0, "waits")
    child = os.fork()
    if child == 0:
        os._exit(grid.submit("--time", "1", "--restarts", "0", cluster="local", seeds=(0,)))
    until(lambda: grid.trains(0))
    os.kill(grid.starts(0)[0]["job"], signal.SIGUSR2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert grid.status() == 0 and "1 stopped" in capsys.readouterr().out
    assert (grid.folder(0) / "stopped.json").exists()  # it saved all the same
    assert len(grid.starts(0)) == 1


def test_the_training_gets_sigterm_once(tmp_path: Path) -> None:
    """Slurm may send SIGTERM and then the signal of the limit: a second one would not save."""
    program = (
        "import os, signal, sys, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: seen.append(1))\n"
        "print('ready', flush=True)\n"
        "while not seen: time.sleep(0.01)\n"
        "print('seen', flush=True)\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "print('signals', len(seen), flush=True)\n"
        "sys.exit(75)\n"
    )
    over = tmp_path / "over"
    command = [sys.executable, "-c", program, str(over)]
    job = TrainJob(command, tmp_path / "run", tmp_path, 60)
    log = tmp_path / "run" / "log.txt"

    def signals() -> None:
        until(lambda: log.exists() and "\nready\n" in log.read_text())
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: "\nseen\n" in log.read_text())
        job.ask_to_stop()
        over.touch()

    thread = threading.Thread(target=signals)
    before = signal.getsignal(signal.SIGTERM)
    thread.start()
    with pytest.raises(Exception, match="was stopped; gem-core submit continues it"):
        job()
    thread.join()
    assert "signals 1" in log.read_text()
    assert signal.getsignal(signal.SIGTERM) is before


def test_nothing_of_a_job_folder_is_unpickled_by_the_command(grid: Grid, capsys: Said) -> None:
    """A file that runs code when it is unpickled stays a file, whatever is asked about it."""
    assert grid.submit(cluster="local", seeds=(0,)) == 0
    trap = grid.out / "trap"
    poison = pickle.dumps(_Trap(str(trap)))
    for path in (grid.out / "submitit").glob("*.pkl"):
        path.write_bytes(poison)
    assert grid.status() == 0
    assert grid.submit(cluster="local", seeds=(0,)) == 0
    assert not trap.exists()
    pickle.loads(poison)
    assert trap.exists()  # the trap works


class _Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return Path.touch, (Path(self.path),)
