"""``gem-core compare``: a grid of runs, each in its trainer's environment, and its report."""

from __future__ import annotations

import argparse
import json
import shlex

from gem_core.compare.agreement import side_by_side
from gem_core.compare.grid import Cell, make_grid
from gem_core.compare.results import csv_text, markdown, read_cells
from gem_core.compare.runner import Plan, command, run_grid
from gem_core.errors import GemError
from gem_core.report import markdown_table
from gem_core.training.trainers import get_trainer, list_trainers, resolve

QUICK = ("train.steps=2", "eval.episodes=50", "model.tiny.warm_start_steps=40")
"""Overrides of ``--quick``: every trainer's whole path, nothing learnt."""


def compare(args: argparse.Namespace) -> int:
    """Run the grid and write its report; exit code 1 if a cell failed."""
    cells = make_grid(
        args.baselines[:1] if args.quick else args.baselines,
        args.trainers or list_trainers(),
        args.algorithms,
        args.seeds,
    )
    extra = (*(QUICK if args.quick else ()), *args.overrides)
    plan = Plan(args.out, args.profile, extra, args.budget, args.retry_failed)
    if args.dry_run:
        return dry_run(cells, plan)
    states = {} if args.report_only else run_grid(cells, plan)
    report(plan)
    return 1 if states.get("failed") else 0


def dry_run(cells: list[Cell], plan: Plan) -> int:
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


def report(plan: Plan) -> None:
    """Write ``table.md``, ``cells.csv``, the pictures and ``report.html`` from the result files."""
    from gem_core.compare.page import write_page
    from gem_core.compare.plots import curves, times

    cells = read_cells(plan.out)
    tables = f"{markdown_table(*side_by_side(cells))}\n{markdown(cells)}"
    (plan.out / "table.md").write_text(tables, encoding="utf-8")
    (plan.out / "cells.csv").write_text(csv_text(cells), encoding="utf-8")
    pictures = []
    if any(cell.status == "done" for cell in cells):
        pictures = [*curves(cells, plan.out), times(cells, plan.out / "times.png")]
    page = write_page(cells, pictures, plan.out / "report.html")
    print(f"{tables}\n{page}")
