"""The grid of these tests: its trainer and its Slurm are stand-ins, submitit is the real one."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # for the helpers of these tests
from submit_grid import Grid  # noqa: E402

from gem_submit import launch  # noqa: E402


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Grid]:
    """A grid in a new folder; Slurm's commands are on PATH."""
    made = Grid(tmp_path / "out", tmp_path / "behaviours", tmp_path / "slurm")
    commands = tmp_path / "bin"
    for folder in (made.behaviours, made.slurm, commands):
        folder.mkdir()
    python = write_command(commands / "trainer-python", "stand_in.py")
    for name in ("sbatch", "srun", "sacct", "scontrol"):
        write_command(commands / name, "fake_slurm.py", name)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GEM_CORE_PYTHON_TRL", str(python))
    monkeypatch.setenv("STAND_IN", str(made.behaviours))
    monkeypatch.setenv("FAKE_SLURM", str(made.slurm))
    monkeypatch.setattr(launch, "WAIT_S", {"slurm": 0.1, "local": 0.1})
    with suppress(ImportError):
        import submitit

        submitit.SlurmJob.watcher.clear()  # the numbers of jobs are those of other tests
    yield made
    made.kill_all()


def write_command(path: Path, program: str, *words: str) -> Path:
    """Write a command that runs a program of this folder."""
    first = " ".join(repr(word) for word in (sys.executable, str(HERE / program), *words))
    path.write_text(f'#!/bin/sh\nexec {first} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
