"""Carrying out the cells of a comparison, one subprocess each, in the trainer's own environment.

All state is in files, so a comparison that is killed goes on where it stopped: a cell with a
``result.json`` is done, one with a ``failed.json`` failed, any other is (re)started with
``--resume``. A cell's process holds a lock on its directory; one that outlived a killed runner is
ended before its cell is started again.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gem_core.compare.grid import Cell
from gem_core.errors import GemError, MissingDependencyError
from gem_core.training.trainers import check, get_trainer

Say = Callable[[str], None]
_GRACE_S = 20.0


@dataclass(frozen=True)
class Plan:
    """How the cells of a comparison are run.

    Attributes:
        out: directory of the comparison.
        profile: recipe profile of every cell.
        extra: recipe overrides of every cell.
        budget_s: wall seconds a cell may take; None = no bound.
        retry_failed: run failed cells again.
    """

    out: Path
    profile: str | None = "tiny"
    extra: tuple[str, ...] = ()
    budget_s: float | None = None
    retry_failed: bool = False

    def directory(self, cell: Cell) -> Path:
        """The run directory of a cell."""
        return self.out / cell.name


def trainer_python(name: str) -> str:
    """The interpreter that has trainer ``name``.

    Looked for in this order: ``GEM_CORE_PYTHON_<NAME>``, the environments that ``make env-<name>``
    builds (below ``GEM_CORE_ENVS``, else the checkout's ``.venvs``), this interpreter.

    Raises:
        MissingDependencyError: none of them has it.
    """
    given = os.environ.get(f"GEM_CORE_PYTHON_{name.upper()}")
    if given:
        return given
    checkout = Path(__file__).resolve().parents[2]
    envs = Path(os.environ.get("GEM_CORE_ENVS") or checkout / ".venvs")
    built = envs / name / "bin" / "python"
    if built.exists():
        return str(built)
    if check(get_trainer(name)).ready:
        return sys.executable
    raise MissingDependencyError(
        f"No environment for trainer {name!r}: run `make env-{name}` in a checkout, or set "
        f"GEM_CORE_PYTHON_{name.upper()} to an interpreter that has it."
    )


def command(cell: Cell, plan: Plan) -> list[str]:
    """The exact command of a cell."""
    parts = [trainer_python(cell.trainer), "-m", "gem_core.cli", "train", cell.baseline]
    parts += ["--trainer", cell.trainer, "--run", str(plan.directory(cell))]
    if plan.profile:
        parts += ["--profile", plan.profile]
    for override in cell.overrides(plan.extra):
        parts += ["--set", override]
    return [*parts, "--resume"]


def status(cell: Cell, plan: Plan) -> str:
    """``done``, ``failed``, ``started`` or ``waiting``."""
    directory = plan.directory(cell)
    if (directory / "result.json").exists():
        return "done"
    if (directory / "failed.json").exists():
        return "failed"
    return "started" if (directory / "recipe.json").exists() else "waiting"


def run_grid(cells: Sequence[Cell], plan: Plan, say: Say = print) -> dict[str, int]:
    """Run every cell that is not done; return how many are in each state at the end.

    A cell that fails keeps its reason and log and does not stop the others.
    """
    began = time.monotonic()
    for number, cell in enumerate(cells, 1):
        state = status(cell, plan)
        head = f"[{number}/{len(cells)}] {cell.name}"
        if state == "done" or (state == "failed" and not plan.retry_failed):
            say(f"{head}: {state} before")
            continue
        say(f"{head}: running ({time.monotonic() - began:.0f} s so far)")
        seconds = time.monotonic()
        reason = run_cell(cell, plan)
        seconds = time.monotonic() - seconds
        say(f"{head}: {'done' if reason is None else 'FAILED: ' + reason} in {seconds:.0f} s")
    states = [status(cell, plan) for cell in cells]
    return {state: states.count(state) for state in ("done", "failed", "started", "waiting")}


def run_cell(cell: Cell, plan: Plan) -> str | None:
    """Run one cell; return None, or why it failed (also in its ``failed.json``)."""
    directory = plan.directory(cell)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "failed.json").unlink(missing_ok=True)
    try:
        argv = command(cell, plan)
        cell.recipe(plan.profile, plan.extra)  # a bad recipe fails here, in words
    except GemError as error:
        return _failed(directory, str(error), None)
    with _locked(directory) as lock, (directory / "log.txt").open("ab") as log:
        log.write(f"$ {shlex.join(argv)}\n".encode())
        log.flush()
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lock],
        )
        (directory / "pid").write_text(str(process.pid))
        try:
            code: int | None = process.wait(plan.budget_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_session(process.pid)
            process.wait()
    if code is None:
        return _failed(directory, f"took longer than its budget of {plan.budget_s:g} s", None)
    if code != 0 or not (directory / "result.json").exists():
        return _failed(directory, _reason(directory), code)
    return None


def end_session(leader: int, grace_s: float = _GRACE_S) -> None:
    """End every process of a session: asked first, then forced after ``grace_s`` seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(leader, number)
        except ProcessLookupError:
            return
        ends = time.monotonic() + grace_s
        while time.monotonic() < ends and _group_alive(leader):
            time.sleep(0.05)


def _group_alive(leader: int) -> bool:
    """Whether the process group has a member that is not a zombie."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            return True
    return False


@contextmanager
def _locked(directory: Path) -> Iterator[int]:
    """Hold the cell's lock; end a process that outlived an earlier runner and still holds it."""
    with (directory / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            end_session(int((directory / "pid").read_text()))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file.fileno()


def _failed(directory: Path, reason: str, code: int | None) -> str:
    failure = {"reason": reason, "exit_code": code, "log": "log.txt"}
    (directory / "failed.json").write_text(json.dumps(failure, indent=1) + "\n")
    return reason


def _reason(directory: Path) -> str:
    """The last line of the log that says something."""
    lines = (directory / "log.txt").read_text(errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:300] if said else "no output"
