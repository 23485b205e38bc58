"""Run the cells of a comparison, one process each, in the trainer's own environment.

All state is in files, so that a comparison that was killed continues where it stopped: a cell with
a ``result.json`` is done, one with a ``failed.json`` failed, any other is (re)started with
``--resume``. A cell's process holds a lock on its directory; a process that outlived a killed
runner is ended before its cell is started again. Where the trainer allows it, its imports are paid
for once, see `gem_compare.prepared`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gem_compare.grid import Cell
from gem_compare.limits import wait
from gem_compare.prepared import ForkedCell, PreparedProcesses
from gem_compare.processes import end_session, lock_cell
from gem_compare.reasons import failure_reason
from gem_compare.recipes import why_stale
from gem_core.errors import GemError, MissingDependencyError
from gem_core.results import record
from gem_core.runs.checkout import checkout, cpu_line
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.redaction import redact_command, redact_text
from gem_core.runs.trainers import check, get_trainer

STATES = ("done", "stale", "failed", "started", "waiting")
"""States of a cell, see `status`."""


@dataclass(frozen=True)
class GridPlan:
    """How the cells of a comparison are run.

    Attributes:
        out: directory of the comparison.
        profile: recipe profile of every cell.
        extra: recipe overrides of every cell.
        budget_s: largest number of seconds of a cell's training; ``None`` = no limit.
        idle_s: largest number of seconds in which a cell writes nothing; ``None`` = no limit.
        retry_failed: whether failed cells are run again.
        retry_stale: whether finished cells of another recipe are replaced.
        record: directory to which the figures of every finished cell are copied, see
            `gem_core.results.record`. A cell that it has already, of the same recipe, is
            done.
    """

    out: Path
    profile: str | None = "tiny"
    extra: tuple[str, ...] = ()
    budget_s: float | None = None
    idle_s: float | None = None
    retry_failed: bool = False
    retry_stale: bool = False
    record: Path | None = None

    def directory(self, cell: Cell) -> Path:
        """Return the run directory of a cell."""
        return self.out / cell.name


def trainer_python(name: str) -> str:
    """Return the Python interpreter of the trainer called ``name``.

    These are tried in this order: ``GEM_CORE_PYTHON_<NAME>``, the environment that
    ``make env-<name>`` builds (in ``GEM_CORE_ENVS``, or else in the checkout's ``.venvs``), this
    interpreter.

    Raises:
        MissingDependencyError: none of them has the trainer.
    """
    chosen = os.environ.get(f"GEM_CORE_PYTHON_{name.upper()}")
    if chosen:
        return chosen
    envs = Path(os.environ.get("GEM_CORE_ENVS") or (checkout() or Path()) / ".venvs")
    built = envs / name / "bin" / "python"
    if built.exists():
        return str(built)
    if check(get_trainer(name)).ready:
        return sys.executable
    raise MissingDependencyError(f"No environment for trainer {name!r}: {_how_to_make(name)}.")


def _how_to_make(name: str) -> str:
    """Return what makes an environment for the trainer called ``name``."""
    variable = f"GEM_CORE_PYTHON_{name.upper()}"
    if checkout() is not None:
        return f"run `make env-{name}` in {checkout()}, or set {variable} to its interpreter"
    line = cpu_line(name, get_trainer(name).install)
    return f"in a virtual environment of its own, {line}, then set {variable} to its interpreter"


def command(cell: Cell, plan: GridPlan) -> list[str]:
    """Return the exact command of a cell."""
    parts = [trainer_python(cell.trainer), "-m", "gem_core.cli", "train", cell.baseline]
    parts += ["--trainer", cell.trainer, "--run", str(plan.directory(cell))]
    if plan.profile:
        parts += ["--profile", plan.profile]
    for override in cell.overrides(plan.extra):
        parts += ["--set", override]
    return [*parts, "--resume"]


def status(cell: Cell, plan: GridPlan) -> str:
    """Return ``done``, ``stale``, ``failed``, ``started`` or ``waiting``.

    A ``stale`` cell is finished or started, with another recipe than the one that is asked for.
    """
    directory = plan.directory(cell)
    if (directory / "failed.json").exists():
        return "failed"
    if _is_recorded(cell, plan):
        return "done"
    if not (directory / "recipe.json").exists():
        return "waiting"
    if why_stale(directory, cell.recipe(plan.profile, plan.extra)):
        return "stale"
    return "done" if (directory / "result.json").exists() else "started"


def _is_recorded(cell: Cell, plan: GridPlan) -> bool:
    """Return whether ``plan.record`` has the figures of this cell, of the same recipe."""
    if plan.record is None or not (plan.record / cell.name / "result.json").exists():
        return False
    return not why_stale(plan.record / cell.name, cell.recipe(plan.profile, plan.extra))


def _record(cell: Cell, plan: GridPlan) -> None:
    """Copy the figures of a finished cell to ``plan.record``, if it does not have them."""
    if plan.record is not None and not _is_recorded(cell, plan):
        record(RunDir(plan.directory(cell)), plan.record / cell.name)


def run_grid(
    cells: Sequence[Cell],
    plan: GridPlan,
    log: Callable[[str], None] = print,
    update: Callable[[int, str], None] | None = None,
) -> dict[str, int]:
    """Run every cell that is not done.

    A cell that fails keeps its reason and its log, and does not stop the others. A stale cell is
    left unchanged unless ``plan.retry_stale`` is set.

    Args:
        cells: in their order.
        plan: how they are run.
        log: receives lines.
        update: receives the number of cells that are over, and the name of the next.

    Returns:
        How many cells are in each state of `status` at the end.
    """
    with PreparedProcesses() as prepared:
        _run_cells(cells, plan, log, update, prepared)
    states = [status(cell, plan) for cell in cells]
    return {state: states.count(state) for state in STATES}


def _run_cells(
    cells: Sequence[Cell],
    plan: GridPlan,
    log: Callable[[str], None],
    update: Callable[[int, str], None] | None,
    prepared: PreparedProcesses,
) -> None:
    """Run every cell that is not done, in turn."""
    began = time.monotonic()
    for number, cell in enumerate(cells, 1):
        state = status(cell, plan)
        head = f"[{number}/{len(cells)}] {cell.name}"
        if update is not None:
            update(number - 1, cell.name)
        if state == "stale" and plan.retry_stale:
            RunDir(plan.directory(cell)).clear()
        elif state == "stale":
            log(f"{head}: {_stale_text(cell, plan)}")
            continue
        elif state == "done" or (state == "failed" and not plan.retry_failed):
            log(f"{head}: {state} before")
            if state == "done":
                _record(cell, plan)
            continue
        started = time.monotonic()
        log(f"{head}: running ({started - began:.0f} s so far)")
        reason = run_cell(cell, plan, prepared)
        seconds = time.monotonic() - started
        outcome = "done" if reason is None else f"FAILED: {reason}"
        log(f"{head}: {outcome} in {seconds:.0f} s")
        if reason is None:
            _record(cell, plan)


def _stale_text(cell: Cell, plan: GridPlan) -> str:
    why = why_stale(plan.directory(cell), cell.recipe(plan.profile, plan.extra))
    return f"STALE: {why} (--retry-stale replaces it, another --out keeps it)"


def run_cell(cell: Cell, plan: GridPlan, prepared: PreparedProcesses | None = None) -> str | None:
    """Run one cell; return why it failed (also in its ``failed.json``), ``None`` if it did not.

    Args:
        cell: the cell.
        plan: how it is run.
        prepared: processes that have imported a trainer; ``None`` = each cell imports for itself.
    """
    directory = plan.directory(cell)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "failed.json").unlink(missing_ok=True)
    try:
        argv = command(cell, plan)
        cell.recipe(plan.profile, plan.extra)  # an invalid recipe raises here
    except GemError as error:
        return _record_failure(directory, str(error), None)
    with lock_cell(directory) as lock, (directory / "log.txt").open("ab") as log:
        log.write(f"$ {shlex.join(redact_command(argv))}\n".encode())
        log.flush()
        forked = _fork(cell, plan, argv, prepared, log.fileno(), lock)
        process = forked or subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lock],
        )
        (directory / "pid").write_text(str(process.pid))
        try:
            over = wait(process, directory, plan.budget_s, plan.idle_s)
        finally:
            end_session(process.pid)
            code = process.wait()
    if over is not None:
        return _record_failure(directory, over, None)
    if code != 0 or not (directory / "result.json").exists():
        return _record_failure(directory, failure_reason(directory), code)
    return None


def _fork(
    cell: Cell,
    plan: GridPlan,
    argv: Sequence[str],
    prepared: PreparedProcesses | None,
    log: int,
    lock: int,
) -> ForkedCell | None:
    """Begin a cell in a process that has imported its trainer, where there can be one."""
    modules = get_trainer(cell.trainer).shared_imports
    python, option, *program = argv
    if prepared is None or not modules or option != "-m":
        return None
    if cell.recipe(plan.profile, plan.extra).hardware.device != "cpu":
        return None
    return prepared.get(python, modules).start(program, log, lock)


def _record_failure(directory: Path, reason: str, code: int | None) -> str:
    failure = {"reason": redact_text(reason), "exit_code": code, "log": "log.txt"}
    (directory / "failed.json").write_text(json.dumps(failure, indent=1) + "\n")
    return reason
