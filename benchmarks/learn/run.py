"""What reinforcement learning finds that the start did not have: the suite in the profile `learn`.

    .venvs/trl/bin/python benchmarks/learn/run.py                    # measure what is missing
    .venvs/trl/bin/python benchmarks/learn/run.py --trainers verl --seeds 0
    .venvs/trl/bin/python benchmarks/learn/run.py --table-only       # the page, from the results

A cell is `gem-core train` and then `gem-core controls` on its run, each in the trainer's own
environment. Cells are measured one after another; those that have a file of the same recipe are
skipped, a cell that fails leaves none. Seeds 0 to 9 are reported; 100 and above choose settings.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from learn_cells import (
    PROFILE,
    RESULTS,
    cell_file,
    collect_cell,
    has_other_recipe,
    read_cell,
    write_cell,
)
from page import SEEDS, write_page

from gem_compare.grid import ALGORITHMS, Cell, make_grid
from gem_compare.lockstep.recipe import WHOLE_BATCHES
from gem_compare.reasons import failure_reason
from gem_compare.runner import GridPlan, run_cell, trainer_python
from gem_core.errors import GemError
from gem_core.runs import provenance
from gem_core.runs.directory.lock import exclusive
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.files import read_own_profile
from gem_core.runs.recipe.suite import load_suite
from gem_core.runs.trainers import trainer_names

REPORTED = range(10)
"""Seeds of the committed results; what is tried has those of 100 and above."""
OVERRIDES = (f"train.log_episodes={WHOLE_BATCHES}",)
"""Of every cell: the tokens of whole batches are compared between trainers."""


def main() -> int:
    """Measure what is missing and write the page; return 1 if a cell failed."""
    arguments = parse()
    if arguments.table_only:
        write_page(arguments.results)
        return 0
    cells = make_grid(
        arguments.baselines, arguments.trainers, arguments.algorithms, arguments.seeds
    )
    plan = GridPlan(arguments.out, PROFILE, (*OVERRIDES, *arguments.overrides))
    with exclusive(arguments.out):  # a second program would delete the run of a cell under way
        failed = measure_missing(cells, plan, arguments.results)
    write_page(arguments.results)
    for name, reason in failed.items():
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    """Return the options; a tree with changes and an unusable choice end the program."""
    suite = [baseline.name for baseline in load_suite()]
    ready = [name for name in suite if read_own_profile(name, PROFILE)]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--baselines", nargs="+", default=ready, metavar="NAME|FILE", help="(those of the suite)"
    )
    parser.add_argument("--trainers", nargs="+", choices=trainer_names(), default=["trl"])
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=["rebn"])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="(%(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the cells' files")
    parser.add_argument("--out", type=Path, default=Path("build/learn"), help="runs under way")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help="for trials, with --results of another folder",
    )
    parser.add_argument("--table-only", action="store_true", help="measure nothing")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    trial = arguments.overrides or not set(arguments.seeds) <= set(REPORTED)
    if trial and arguments.results.resolve() == RESULTS:
        parser.error("--set and validation seeds are trials: name another folder with --results.")
    if not arguments.table_only:
        provenance.check_option(parser, arguments)
        refuse_unprepared(arguments.baselines)
    return arguments


def refuse_unprepared(baselines: Iterable[str]) -> None:
    """Check that every baseline has settings of the profile.

    Raises:
        GemError: there is no such baseline, or it has none.
    """
    for name in baselines:
        if not read_own_profile(name, PROFILE):
            raise GemError(f"{name} has no table [profiles.{PROFILE}]: write it, or leave it out.")


def measure_missing(cells: Iterable[Cell], plan: GridPlan, results: Path) -> dict[str, str]:
    """Measure the cells that have no file of their recipe; return why others failed, by name."""
    failed = {}
    for cell in cells:
        try:
            if is_measured(cell, plan, results):
                continue
            print(f"==> {cell.name}", flush=True)
            reason = measure(cell, plan, results)
        except GemError as error:
            reason = str(error)
        if reason is not None:
            failed[cell.name] = reason
    return failed


def is_measured(cell: Cell, plan: GridPlan, results: Path) -> bool:
    """Return whether a cell has a file, of the recipe that is asked for.

    Raises:
        GemError: the file or the recipe cannot be read.
    """
    path = cell_file(results, cell)
    if not path.exists():
        return False
    stale = has_other_recipe(read_cell(path), cell, plan.extra)
    if stale:
        print(f"{cell.name} was made of another recipe: it is measured again", flush=True)
    return not stale


def measure(cell: Cell, plan: GridPlan, results: Path) -> str | None:
    """Train a cell, play its controls and write its file; return why it failed.

    The run is deleted when its file is written; the run of a cell that failed stays, with its log.

    Raises:
        GemError: the run cannot be read, or cannot be judged.
    """
    commit = provenance.commit()
    began = time.perf_counter()
    run = RunDir(plan.directory(cell))
    if run.exists:
        run.clear()  # of a cell that failed, or whose process was killed, perhaps of another commit
    reason = run_cell(cell, plan) or play_controls(cell, run)
    if reason is not None:
        return reason
    seconds = time.perf_counter() - began
    figures = collect_cell(cell, run, run.path / "controls", cell.overrides(plan.extra))
    if {commit, provenance.commit(), figures.commit} != {commit}:
        return "the checkout changed while it ran: measure it again in one that stays as it is"
    seconds_of = {**figures.seconds, "total": round(seconds, 1)}
    write_cell(results, msgspec.structs.replace(figures, seconds=seconds_of))
    shutil.rmtree(run.path)
    return None


def play_controls(cell: Cell, run: RunDir) -> str | None:
    """Play the controls of a finished run by the user's command; return why that failed."""
    command = [trainer_python(cell.trainer), "-m", "gem_core.cli", "controls", str(run.path)]
    command += ["--out", str(run.path / "controls")]
    with (run.path / "log.txt").open("ab") as log:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    return failure_reason(run.path) if done.returncode else None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GemError as error:
        sys.exit(f"run.py: {error}")
