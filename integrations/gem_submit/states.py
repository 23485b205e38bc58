"""What became of each cell: from the files of its run, and from the cluster.

A cell that was submitted has `JOB` beside its run: where it was submitted, and the number of the
job. Nothing that submitit pickled is read here; its result file only says, by being there, that a
job is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gem_compare.reasons import error_line
from gem_core.errors import RunError
from gem_core.runs.directory.files import open_file, read_object
from gem_core.runs.directory.records import FailedFile
from gem_submit.job import FAILED, LOG

JOB = "job.json"
STATES = ("finished", "failed", "stopped", "running", "waiting", "new")
"""``stopped``: it is over without a result and without an error of its own, and can go on."""
OPEN = ("running", "waiting")
_LOG_BYTES = 64 << 10
_QUEUED = ("READY", "PENDING", "CONFIGURING", "REQUEUED", "PREEMPTED", "SUSPENDED")
_ACTIVE = ("RUNNING", "COMPLETING", "STAGE_OUT")
_UNKNOWN = "UNKNOWN"


class JobFile(msgspec.Struct, frozen=True):
    """``job.json`` of a cell.

    Attributes:
        cluster: ``slurm``, ``local`` or ``debug``.
        job: the number of the job there.
    """

    cluster: str
    job: str


class CellState(NamedTuple):
    """What became of a cell.

    Attributes:
        name: its folder below that of the grid.
        state: one of `STATES`.
        detail: the reason, or what the cluster says.
    """

    name: str
    state: str
    detail: str = ""

    @property
    def line(self) -> str:
        """It as one line."""
        return f"{self.name}: {self.state}{self.detail and f', {self.detail}'}"


def read_job(folder: Path) -> JobFile | None:
    """Return the job of the cell in ``folder``, ``None`` if it was never submitted.

    Raises:
        RunError: the file is damaged.
    """
    try:
        return msgspec.convert(read_object(folder / JOB, JobFile), JobFile)
    except FileNotFoundError:
        return None


def find_cells(out: Path) -> list[str]:
    """Return the names of the cells below ``out`` that were submitted.

    Raises:
        RunError: there is none.
    """
    names = [str(path.parent.relative_to(out)) for path in sorted(out.glob(f"*/*/*/seed*/{JOB}"))]
    if not names:
        raise RunError(f"{out} has no cells of gem-core submit: name its --out.")
    return names


def read_states(out: Path, names: Iterable[str], said: Mapping[str, str | None]) -> list[CellState]:
    """Return what became of the cells.

    Args:
        out: folder of the grid.
        names: the cells.
        said: what the cluster says of a cell's job, ``None`` where it is over.
    """
    return [_state(out / name, name, said.get(name)) for name in names]


def _state(folder: Path, name: str, said: str | None) -> CellState:
    if (folder / "result.json").exists():
        return CellState(name, "finished")
    word = (said or "").split(" ")[0]
    if word in _ACTIVE:
        return CellState(name, "running", _last_line(folder))
    if word in _QUEUED:
        return CellState(name, "waiting", "" if word == "PENDING" else f"Slurm: {said}")
    began = (folder / "recipe.json").exists()
    if (folder / FAILED).exists():
        return CellState(name, "failed", _reason(folder))
    if word == _UNKNOWN:
        state = "running" if _has_begun(folder) else "waiting"
        return CellState(name, state, "Slurm does not say")
    if not began and not (folder / JOB).exists():
        return CellState(name, "new")
    details = [f"Slurm: {said}" if word else "", _last_line(folder)]
    return CellState(name, "stopped", "; ".join(detail for detail in details if detail))


def count_states(states: Sequence[CellState]) -> str:
    """Return how many cells are in each state, as text.

    >>> count_states([CellState("a", "finished"), CellState("b", "new")])
    '2 cells: 1 finished, 1 new'
    """
    counts = Counter(cell.state for cell in states)
    parts = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    return f"{len(states)} cell{'s' * (len(states) != 1)}: {', '.join(parts)}"


def _has_begun(folder: Path) -> bool:
    """Return whether the training has written something since its job was submitted."""
    log, job = folder / LOG, folder / JOB
    return log.exists() and log.stat().st_mtime >= job.stat().st_mtime


def _reason(folder: Path) -> str:
    try:
        return str(read_object(folder / FAILED, FailedFile)["reason"])
    except (FileNotFoundError, RunError) as error:
        return str(error)


def _last_line(folder: Path) -> str:
    """Return the last line of the training's output that says something, "" without one."""
    try:
        with open_file(folder / LOG) as file:
            file.seek(max(0, file.seek(0, 2) - _LOG_BYTES))
            text = file.read().decode(errors="replace")
    except (FileNotFoundError, RunError):
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = error_line(lines[-1]) if lines else ""
    return "".join(char for char in line if char.isprintable())
