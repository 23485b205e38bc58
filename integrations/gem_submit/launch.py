"""Give cells to submitit, ask what became of their jobs, and wait for them.

Slurm gets one job array. On this machine submitit starts every job at once, so the next cell is
submitted when one is over, by the process that waits.
"""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, Protocol

from gem_core.errors import GemError, MissingDependencyError, how_to_install
from gem_core.runs.directory.files import write_object
from gem_submit.cells import GridCell
from gem_submit.job import FAILED, TrainJob
from gem_submit.resources import Resources
from gem_submit.states import JOB, OPEN, CellState, read_job, read_states

JOBS = "submitit"
"""Folder of submitit's own files, below that of the grid."""
_COMMANDS = ("sbatch", "srun")
_LOCAL = b"submitit.local._local"
WAIT_S = {"slurm": 10.0, "local": 0.5}
"""Seconds between two looks at the cells."""


class Executor(Protocol):
    """What is used of submitit's executors."""

    def submit_array(self, fns: Sequence[Callable[[], Any]]) -> list[Any]:
        """Submit functions; those of Slurm as one array."""


def make_executor(cluster: str, out: Path, resources: Resources) -> Executor:
    """Return submitit's executor of a cluster.

    Raises:
        GemError: there is no Slurm, or submitit refuses a parameter.
        MissingDependencyError: submitit is missing.
    """
    submitit = import_submitit()
    folder = out / JOBS
    executor: Any
    if cluster == "debug":
        executor = submitit.DebugExecutor(folder)
    elif cluster == "local":
        executor = submitit.LocalExecutor(folder, max_num_timeout=resources.restarts)
        executor.update_parameters(**resources.local())
    else:
        missing = [name for name in _COMMANDS if shutil.which(name) is None]
        if missing:
            raise GemError(
                f"There is no {missing[0]} on PATH: submit on a machine of the cluster, or try the "
                "grid here with --cluster local."
            )
        executor = submitit.SlurmExecutor(folder, max_num_timeout=resources.restarts)
        executor.update_parameters(**resources.slurm())
    result: Executor = executor
    return result


def import_submitit() -> Any:
    """Return the module.

    Raises:
        MissingDependencyError: it is missing.
    """
    try:
        import submitit
    except ImportError:
        raise MissingDependencyError(
            f"gem-core submit needs submitit: {how_to_install('slurm')}."
        ) from None
    return submitit


class Jobs:
    """The jobs of a grid.

    Args:
        cluster: ``slurm``, ``local`` or ``debug``.
        out: folder of the grid.
        executor: submits; ``None`` = jobs are only asked for.
    """

    def __init__(self, cluster: str, out: Path, executor: Executor | None = None) -> None:
        self._cluster = cluster
        self._out = out
        self._executor = executor
        self._known: dict[str, Any] = {}

    def submit(self, cells: Sequence[GridCell], notice_s: int) -> list[str]:
        """Submit cells; return the numbers of their jobs.

        Raises:
            GemError: the cluster refuses them.
        """
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        assert self._executor is not None
        for cell in cells:
            cell.folder.mkdir(parents=True, exist_ok=True)
            # Before the jobs exist: what they write themselves stays.
            (cell.folder / FAILED).unlink(missing_ok=True)
        functions = [TrainJob(cell.command, cell.folder, Path.cwd(), notice_s) for cell in cells]
        try:
            with redirect_stderr(io.StringIO()):  # submitit prints what the error has, too
                jobs = self._executor.submit_array(functions)
        except (FailedJobError, FailedSubmissionError) as error:
            said = " ".join(str(error).split()) or "no reason given"
            raise GemError(f"The cluster refused the jobs: {said}") from error
        for cell, job in zip(cells, jobs, strict=True):
            self._known[cell.name] = job
            write_object(cell.folder / JOB, {"cluster": self._cluster, "job": job.job_id})
        return [job.job_id for job in jobs]

    def states(self, names: Sequence[str]) -> list[CellState]:
        """Return what became of cells.

        Raises:
            MissingDependencyError: a job was submitted to Slurm, and submitit is missing.
            RunError: the file of a job is damaged.
        """
        for name in names:  # all are known before Slurm is asked once for all of them
            if name not in self._known:
                self._known[name] = self._find(name)
        return read_states(self._out, names, {name: self._ask(name) for name in names})

    def run_here(self, name: str) -> None:
        """Run the cell's job, which was submitted to ``debug``, in this process."""
        self._known.pop(name).exception()  # the files of the cell say what it was

    def _find(self, name: str) -> Any:
        record = read_job(self._out / name)
        if record is None or record.cluster == "debug":
            return None
        if record.cluster == "local":
            return record.job
        return import_submitit().SlurmJob(folder=self._out / JOBS, job_id=record.job)

    def _ask(self, name: str) -> str | None:
        """Return the state of a job in Slurm's words; ``None``: it is over, or there is none."""
        job = self._known[name]
        if job is None:
            return None
        if isinstance(job, str):
            over = (self._out / JOBS / f"{job}_0_result.pkl").exists()
            return "RUNNING" if not over and _is_controller(job) else None
        if job.paths.result_pickle.exists():
            return None
        if hasattr(job, "_process"):
            return None if job.done() else "RUNNING"
        return str(job.state)


def wait_for(
    jobs: Jobs,
    waiting: Sequence[GridCell],
    names: Sequence[str],
    resources: Resources,
    cluster: str,
    say: Callable[[str], None],
) -> list[CellState]:
    """Wait until no cell is open, and say what changes.

    Args:
        jobs: the jobs of the grid.
        waiting: cells that are submitted here, as others end.
        names: all cells.
        resources: what each job asks for.
        cluster: the name of the cluster.
        say: receives lines.
    """
    queue = list(waiting)
    shown: dict[str, str] = {}
    while True:
        states = jobs.states(names)
        places = (resources.at_most or 1) - sum(cell.state in OPEN for cell in states)
        started, queue = queue[: max(0, places)], queue[max(0, places) :]
        queued = {cell.name for cell in (*started, *queue)}
        for cell in states:
            if cell.name not in queued and shown.get(cell.name) != cell.state:
                shown[cell.name] = cell.state
                say(cell.line)
        if started:
            jobs.submit(started, resources.notice_s)
        elif not any(cell.state in OPEN for cell in states):
            return states
        time.sleep(WAIT_S[cluster])


def _is_controller(pid: str) -> bool:
    """Return whether a process of this machine is submitit's controller of a job."""
    try:
        return _LOCAL in Path(f"/proc/{int(pid)}/cmdline").read_bytes()
    except (OSError, ValueError):
        return False
