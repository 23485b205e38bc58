"""``gem-core compare``: run a grid of experiments and write its report."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from gem_compare.agreement import side_by_side
from gem_compare.folder import claim
from gem_compare.grid import Cell, make_grid
from gem_compare.lockstep.recipe import LOCKSTEP, STEPS, overrides
from gem_compare.lockstep.report import lockstep_report
from gem_compare.recipes import find_mixed_experiments, mark_stale
from gem_compare.results import CellResult, csv_text, markdown, read_cells
from gem_compare.runner import GridPlan, command, run_grid
from gem_core.errors import GemError
from gem_core.results import markdown_table, origin_lines
from gem_core.results.plots import new_figure
from gem_core.runs.provenance import require_clean
from gem_core.runs.recipe.suite import load_suite
from gem_core.runs.tracking.progress_bar import on_terminal, progress_bar
from gem_core.runs.trainers import get_trainer, list_trainers, resolve

QUICK = (
    "train.steps=3",
    "eval.episodes=50",
    "eval.every=2",
    "eval.inside_episodes=16",
    "model.tiny.warm_start_steps=40",
    *LOCKSTEP,
)
"""Overrides of ``--quick``: they exercise the whole path of each trainer, but learn nothing. The
tokens of the third step depend on the second update of the engine's weights, and the evaluation
after the second step on the same weights: lockstep compares them."""


def compare(args: argparse.Namespace) -> int:
    """Run the grid and write its report.

    Returns:
        1 if a cell failed, is not finished, or is of another recipe than the one asked for; with
        ``--lockstep`` or ``--quick`` also if trainers differ by more than rounding.
    """
    baselines = [baseline.name for baseline in load_suite()] if args.suite else args.baselines
    cells = make_grid(
        baselines[:1] if args.quick else baselines,
        args.trainers or list_trainers(),
        args.algorithms,
        args.seeds,
    )
    plan = make_plan(args)
    if args.dry_run:
        return dry_run(cells, plan)
    if args.report_only:
        return report(plan.out, read_cells(plan.out))
    require_clean(args.allow_dirty or args.quick)  # --quick measures nothing
    new_figure()  # a missing matplotlib is said before anything is trained
    with claim(plan.out, args.quick):
        if on_terminal():
            with progress_bar(len(cells)) as update:
                run_grid(cells, plan, update=update)
        else:
            run_grid(cells, plan)
        return report(plan.out, mark_stale(read_cells(plan.out), cells, plan.profile, plan.extra))


def make_plan(args: argparse.Namespace) -> GridPlan:
    """Return how the cells are run; overrides of the user take precedence over those of a mode.

    Raises:
        GemError: ``--steps`` without ``--lockstep``.
    """
    if args.steps is not None and not args.lockstep:
        raise GemError("--steps is for --lockstep; elsewhere use --set train.steps=N.")
    mode: tuple[str, ...] = ()
    name = "compare"
    if args.quick:
        own_model = any(text.startswith("model.path=") for text in args.overrides)
        mode = tuple(text for text in QUICK if not (own_model and text.startswith("model.tiny.")))
        name = "compare-quick"
    elif args.lockstep:
        mode = overrides(STEPS if args.steps is None else args.steps)
        name = "lockstep"
    out = args.out or Path("runs") / name
    extra = (*mode, *args.overrides)
    return GridPlan(
        out,
        args.profile,
        extra,
        budget_s=args.budget,
        idle_s=args.idle,
        retry_failed=args.retry_failed,
        retry_stale=args.retry_stale,
        record=args.record,
    )


def dry_run(cells: list[Cell], plan: GridPlan) -> int:
    """Print the exact command and the native configuration of each cell."""
    for cell in cells:
        print(f"# {cell.name}\n{shlex.join(command(cell, plan))}")
        recipe = cell.recipe(plan.profile, plan.extra)
        try:
            native = resolve(get_trainer(cell.trainer).translate)(recipe)
        except (ImportError, GemError) as error:
            native = f"not translated here: {error}"
        print(f"#   {json.dumps(native, default=str)}")
    return 0


def report(out: Path, cells: Sequence[CellResult]) -> int:
    """Write ``table.md``, ``cells.csv``, the plots and ``report.html`` from the result files.

    Args:
        out: directory of the comparison.
        cells: what is reported.

    Cells that logged their whole batches are compared token by token, too.

    Returns:
        1 if not every cell has a result, cells of one experiment have different recipes, or
        trainers differ by more than rounding.
    """
    from gem_compare.page import write_page
    from gem_compare.plots import curves, times

    origin = origin_lines(cell.result for cell in cells if cell.result)
    tables = "\n".join([markdown_table(*side_by_side(cells)), markdown(cells), *origin, ""])
    (out / "table.md").write_text(tables, encoding="utf-8")
    (out / "cells.csv").write_text(csv_text(cells), encoding="utf-8")
    pictures = []
    if any(cell.status == "done" for cell in cells):
        curves(cells, out)  # the page draws its own
        pictures.append(times(cells, out / "times.png"))
    lockstep = lockstep_report(cells, out)
    pictures += lockstep.pictures
    page = write_page(out, cells, pictures, out / "report.html")
    print("\n".join([tables, *lockstep.lines, str(page)]))
    problems = [f"{c.name}: {c.status}, {c.reason}" for c in cells if c.status != "done"]
    problems += [f"different recipes in one experiment: {m}" for m in find_mixed_experiments(cells)]
    if problems or not cells:
        print("\n".join(["Not a whole comparison:", *(problems or ["no cells"])]))
    return int(bool(problems) or not cells or bool(lockstep.faults))
