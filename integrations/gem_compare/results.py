"""Read a comparison: rows, tables and summaries, only from its result files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gem_core.errors import RunError
from gem_core.results.origin import commit_of
from gem_core.results.tables import markdown_table, success
from gem_core.runs.directory.files import read_object
from gem_core.runs.directory.records import CellFile, FailedFile
from gem_core.runs.directory.run_dir import RunDir

HEAD = ("baseline", "algorithm", "trainer", "seeds", "before", "after", "train s", "cells")
_T_975 = (math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Two-sided 95 % quantiles of Student's t by degrees of freedom (index), up to 9."""


@dataclass(frozen=True)
class CellResult:
    """One cell of a comparison, read from its files.

    Attributes:
        baseline: recipe name, from the path.
        trainer: trainer name, from the path.
        algorithm: algorithm name, from the path.
        seed: seed of the run, from the path.
        status: ``done``, ``failed``, ``stale``, ``damaged`` or ``unfinished``.
        result: the ``result.json`` of a finished cell.
        reason: why a failed cell failed, what is damaged, or which keys of a stale one are others.
        path: its directory.
    """

    baseline: str
    trainer: str
    algorithm: str
    seed: int
    status: str
    result: dict[str, Any] | None
    reason: str | None
    path: Path

    @property
    def name(self) -> str:
        """The cell's directory below the comparison's, see `.grid.Cell.name`."""
        return "/".join(self.path.parts[-4:])

    def without_figures(self, reason: str) -> CellResult:
        """Return the cell as ``stale``: its result is of another recipe than the one asked for."""
        return replace(self, status="stale", result=None, reason=reason)

    @property
    def run(self) -> RunDir:
        """The cell's run directory."""
        return RunDir(self.path)


def read_cells(out: str | Path) -> list[CellResult]:
    """Return all cells in a comparison's directory, in the order of their names.

    A cell with a file that cannot be read is ``damaged``, and does not stop the others.
    """
    cells = []
    reason: str | None
    for folder in sorted(Path(out).glob("*/*/*/seed*")):
        algorithm, trainer, baseline = (p.name for p in list(folder.parents)[:3])
        number = folder.name.removeprefix("seed")
        if not number.isdecimal():
            continue
        try:
            result = _object(folder / "result.json", CellFile)
            failure = _object(folder / "failed.json", FailedFile)
            if result:
                RunDir(folder).metrics()
        except RunError as error:
            status, reason, result = "damaged", str(error), None
        else:
            status = "done" if result else "failed" if failure else "unfinished"
            reason = failure["reason"] if failure else None
        names = (baseline, trainer, algorithm, int(number))
        cells.append(CellResult(*names, status, result, reason, folder))
    return cells


def groups(cells: Iterable[CellResult]) -> dict[tuple[str, str, str], list[CellResult]]:
    """Return the cells of all seeds by (baseline, algorithm, trainer)."""
    grouped: dict[tuple[str, str, str], list[CellResult]] = {}
    for cell in cells:
        grouped.setdefault((cell.baseline, cell.algorithm, cell.trainer), []).append(cell)
    return dict(sorted(grouped.items()))


def select_shared(cells: Sequence[CellResult]) -> list[CellResult]:
    """Return the cells of the experiments that every trainer has; all cells if there is none."""
    owners: dict[tuple[str, str, int], set[str]] = {}
    for cell in cells:
        owners.setdefault((cell.baseline, cell.algorithm, cell.seed), set()).add(cell.trainer)
    trainers = {cell.trainer for cell in cells}
    shared = [c for c in cells if owners[c.baseline, c.algorithm, c.seed] == trainers]
    return shared or list(cells)


def count_sampled_tokens(cell: CellResult) -> float:
    """Return the number of tokens that a finished cell sampled for training in its whole run."""
    assert cell.result is not None  # the caller passes only finished cells
    rows = cell.run.metrics()
    episodes = cell.result["episodes"] / max(1, len(rows))
    return float(sum(row["tokens/action"] for row in rows) * episodes)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and half-width of its 95 % interval (Student's t); a NaN width for one value.

    >>> [round(x, 3) for x in mean_interval([0.8, 0.9, 1.0])]
    [0.9, 0.248]
    """
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    quantile = _T_975[len(values) - 1] if len(values) <= len(_T_975) else 1.96
    return mean, quantile * spread / math.sqrt(len(values))


def summary_rows(cells: Iterable[CellResult]) -> list[tuple[str, ...]]:
    """Return a row with the columns `HEAD` per baseline, algorithm and trainer."""
    rows: list[tuple[str, ...]] = []
    for (baseline, algorithm, trainer), members in groups(cells).items():
        done = [c.result for c in members if c.result]
        seeds = ",".join(str(c.seed) for c in members if c.result) or "-"
        rows.append(
            (
                baseline,
                algorithm,
                trainer,
                seeds,
                _success(done, "before"),
                _success(done, "after"),
                _seconds(done),
                _state(members),
            )
        )
    return rows


def markdown(cells: Iterable[CellResult]) -> str:
    """Return the summary as a Markdown table."""
    return markdown_table(HEAD, summary_rows(cells))


def csv_text(cells: Iterable[CellResult]) -> str:
    """Return every cell as CSV: its names, its state, and its figures."""
    head = ["baseline", "algorithm", "trainer", "seed", "status", "reason"]
    head += ["before", "after", "after_low", "after_high", "steps", "train_s", "rollout_s"]
    head += ["update_s", "sync_s", "version", "sampled_tokens", "commit", "sessions"]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    for cell in cells:
        names = [cell.baseline, cell.algorithm, cell.trainer, cell.seed, cell.status, cell.reason]
        writer.writerow([*names, *_figures(cell)])
    return buffer.getvalue()


def _figures(cell: CellResult) -> list[Any]:
    result = cell.result
    if result is None:
        return []
    before = result["before"] or {}
    after = result["after"] or {}
    seconds = result["seconds"]
    figures = [before.get("success/mean"), after.get("success/mean")]
    figures += [after.get("success/low"), after.get("success/high"), result["steps"]]
    figures += [seconds.get(k) for k in ("train", "rollout", "update", "sync")]
    figures += [result["versions"].get("gem-core"), round(count_sampled_tokens(cell))]
    return [*figures, commit_of(result), len(result.get("sessions", ())) or None]


def _success(results: Sequence[dict[str, Any]], when: str) -> str:
    """Return the mean over the seeds and their range; for one seed, its evaluation's interval."""
    evaluations = [result[when] for result in results if result[when]]
    if not evaluations:
        return "-"
    if len(evaluations) == 1:
        return success(evaluations[0])
    # Student's interval of three success rates may exceed 0 and 1, so the range is shown.
    rates = [evaluation["success/mean"] for evaluation in evaluations]
    return f"{sum(rates) / len(rates):.3f} ({min(rates):.3f} to {max(rates):.3f})"


def _seconds(results: Sequence[dict[str, Any]]) -> str:
    spent = [r["seconds"]["train"] for r in results]
    return f"{sum(spent) / len(spent):.0f}" if spent else "-"


def _state(cells: Sequence[CellResult]) -> str:
    for status in ("failed", "damaged", "stale"):
        reasons = [cell.reason for cell in cells if cell.status == status]
        if reasons:
            return f"{len(reasons)} {status}: {reasons[0]}"
    open_ = sum(c.status == "unfinished" for c in cells)
    return f"{open_} unfinished" if open_ else "done"


def _object(path: Path, kind: type[Any]) -> dict[str, Any] | None:
    try:
        return read_object(path, kind)
    except FileNotFoundError:
        return None
