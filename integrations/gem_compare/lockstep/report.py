"""Write the lockstep report of a comparison: JSON, page and picture of every experiment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gem_compare.lockstep.page import headline, lockstep_page, title
from gem_compare.lockstep.plots import picture
from gem_compare.lockstep.summary import Summary, faults, lockstep_cells, summarize
from gem_compare.results import CellResult


class LockstepReport(NamedTuple):
    """What `lockstep_report` found.

    Attributes:
        lines: for the terminal.
        pictures: the files that were drawn.
        faults: what is not explained by rounding.
    """

    lines: list[str]
    pictures: list[Path]
    faults: list[str]


def lockstep_report(cells: Sequence[CellResult], out: Path) -> LockstepReport:
    """Compare the finished cells that logged whole batches; write ``lockstep*`` into ``out``.

    Args:
        cells: the cells of a comparison.
        out: directory of the comparison.

    Returns:
        An empty report if no two cells of one experiment logged whole batches.

    Raises:
        RunError: a log is not complete.
    """
    report = LockstepReport([], [], [])
    summaries = []
    for members in lockstep_cells(cells).values():
        summary = summarize(members)
        summaries.append(summary)
        stem = f"lockstep-{file_stem(summary)}"
        write_summary(summary, out / f"{stem}.json")
        report.pictures.append(picture(summary, out / f"{stem}.png"))
        wrong = faults(summary)
        report.faults.extend(wrong)
        report.lines.append(f"Lockstep, {title(summary)}: {headline(summary)}")
        report.lines.extend(f"  {line}" for line in wrong)
    if summaries:
        page = out / "lockstep.md"
        names = [path.name for path in report.pictures]
        page.write_text(f"# Lockstep\n\n{lockstep_page(summaries, names)}", encoding="utf-8")
        report.lines.append(f"Every step, pair and difference: {page}")
    return report


def file_stem(summary: Summary) -> str:
    """Return how the files of an experiment are called."""
    return f"{summary['baseline']}-{summary['algorithm']}-seed{summary['seed']}"


def write_summary(summary: Summary, path: Path) -> None:
    """Write a summary as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n", encoding="utf-8")
