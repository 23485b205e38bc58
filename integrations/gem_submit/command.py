"""``gem-core submit``: a grid of training runs as jobs of a cluster."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from gem_core.cli.output import progress_lines
from gem_core.errors import GemError
from gem_core.runs.directory.lock import hold
from gem_submit.cells import GridCell, count_gpus, make_cells, refuse_stale
from gem_submit.launch import JOBS, Jobs, make_executor, wait_for
from gem_submit.resources import Resources
from gem_submit.states import OPEN, CellState, count_states, find_cells


def submit(arguments: argparse.Namespace) -> int:
    """Submit the cells that have no result, or print what became of those of a folder.

    Returns:
        1 if it waited, and a cell has no result.

    Raises:
        GemError: an option is missing, a cell is refused, or the cluster refuses the jobs.
        MissingDependencyError: submitit or a trainer is missing.
        RunError: another process submits to the folder, or it has no cells.
    """
    if arguments.status is not None:
        return _show_status(arguments.status.absolute())
    cells = make_cells(arguments)
    resources = _resources(arguments, cells)
    refuse_stale(cells)
    if arguments.dry_run:
        return _dry_run(cells, resources, arguments.cluster)
    out = cells[0].out
    jobs = Jobs(arguments.cluster, out, make_executor(arguments.cluster, out, resources))

    def refuse(holder: str) -> str:
        return f"{out} is in use by {holder}: wait for it, or name another folder with --out."

    with hold(out / "submit.lock", refuse):
        chosen = _choose(jobs.states([cell.name for cell in cells]), cells, arguments.retry_failed)
        if arguments.cluster != "slurm":
            return _work_here(jobs, chosen, cells, resources, arguments.cluster)
        _submit_all(jobs, chosen, resources, out)
    return _wait(jobs, [], cells, resources, "slurm") if arguments.wait else 0


def _resources(arguments: argparse.Namespace, cells: Sequence[GridCell]) -> Resources:
    if arguments.cluster == "slurm" and arguments.time is None:
        raise GemError("A job of Slurm has a time limit: add --time, as 24:00:00.")
    options = dict(arguments.slurm)
    gpus = count_gpus(cells, arguments.gpus, "gres" in options)
    if arguments.cluster == "local" and gpus and (arguments.at_most or 1) > 1:
        raise GemError(
            "Cells with GPUs are run one at a time by --cluster local, as each would take the "
            "first GPUs: leave out --at-most."
        )
    if arguments.time is not None and (arguments.notice or 0) >= 60 * arguments.time:
        raise GemError("--notice is longer than --time: name fewer seconds.")
    return Resources(
        minutes=arguments.time,
        gpus=gpus,
        cpus=arguments.cpus,
        mem=arguments.mem,
        partition=arguments.partition,
        at_most=arguments.at_most,
        notice=arguments.notice,
        restarts=arguments.restarts,
        options=options,
    )


def _dry_run(cells: Sequence[GridCell], resources: Resources, cluster: str) -> int:
    """Print the command of each cell, and what the cluster is asked for."""
    for cell in cells:
        done = " (finished: it would be skipped)" if (cell.folder / "result.json").exists() else ""
        print(f"# {cell.name}{done}\n{shlex.join(cell.command)}")
    asked = resources.slurm() if cluster == "slurm" else resources.local()
    asked |= asked.pop("additional_parameters", {})
    print(f"# {cluster}, for each job: {', '.join(f'{k}={v}' for k, v in asked.items())}")
    return 0


def _choose(
    states: Sequence[CellState], cells: Sequence[GridCell], retry_failed: bool
) -> list[GridCell]:
    """Return the cells to submit; say which are not, and why."""
    say = progress_lines()
    left = {*OPEN, "finished", *([] if retry_failed else ["failed"])}
    for cell in states:
        if cell.state in left:
            again = " (--retry-failed submits it again)" if cell.state == "failed" else ""
            say(f"{cell.line}: not submitted{again}")
        elif cell.state == "stopped":
            say(f"{cell.name}: goes on where it was stopped")
    chosen = [one for one, cell in zip(cells, states, strict=True) if cell.state not in left]
    print(f"{count_states(states)}; {len(chosen)} to submit")
    return chosen


def _submit_all(jobs: Jobs, cells: Sequence[GridCell], resources: Resources, out: Path) -> None:
    if not cells:
        return
    for cell, job in zip(cells, jobs.submit(cells, resources.notice_s), strict=True):
        print(f"{cell.name}: job {job}")
    print(f"Batch script and submitit's logs: {out / JOBS}")
    print(f"What became of them: {shlex.join(['gem-core', 'submit', '--status', str(out)])}")


def _work_here(
    jobs: Jobs,
    chosen: Sequence[GridCell],
    cells: Sequence[GridCell],
    resources: Resources,
    cluster: str,
) -> int:
    """Run the cells on this machine, and wait for them."""
    if cluster == "local":
        return _wait(jobs, chosen, cells, resources, cluster)
    say = progress_lines()
    for cell in chosen:
        say(f"{cell.name}: output in {cell.folder / 'log.txt'}")
        jobs.submit([cell], resources.notice_s)
        jobs.run_here(cell.name)
    return _judge(jobs.states([cell.name for cell in cells]))


def _wait(
    jobs: Jobs,
    queue: Sequence[GridCell],
    cells: Sequence[GridCell],
    resources: Resources,
    cluster: str,
) -> int:
    names = [cell.name for cell in cells]
    return _judge(wait_for(jobs, queue, names, resources, cluster, progress_lines()))


def _judge(states: Sequence[CellState]) -> int:
    """Print what became of the cells; return 1 if one has no result."""
    for cell in states:
        if cell.state != "finished":
            print(cell.line)
    print(count_states(states))
    return int(any(cell.state != "finished" for cell in states))


def _show_status(out: Path) -> int:
    states = Jobs("", out).states(find_cells(out))
    for cell in states:
        print(cell.line)
    print(count_states(states))
    return 0
