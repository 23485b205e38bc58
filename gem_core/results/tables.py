"""Tables of results: plain text for the terminal, Markdown for documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gem_core.errors import RunError
from gem_core.results.failures import count_failures
from gem_core.runs.directory.files import convert
from gem_core.runs.directory.records import Measured, Seconds
from gem_core.runs.directory.run_dir import RunDir

Row = Sequence[str]
HEAD = ("recipe", "trainer", "estimator", "seed", "steps", "before", "after", "train s")


class _Shown(msgspec.Struct):
    name: str
    trainer: str
    estimator: str
    seed: int
    steps: int
    before: Measured | None
    after: Measured | None
    seconds: Seconds


def before_after(runs: Iterable[RunDir]) -> str:
    """Return a plain-text table with one line per finished run."""
    return plain_table(HEAD, result_rows(run.result for run in runs))


def result_rows(results: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the cells of the columns `HEAD` for each ``result.json``.

    Raises:
        RunError: a result has another format, or lacks something.
    """
    rows: list[Row] = []
    for result in results:
        if result.get("format") not in (1, 2):
            raise RunError(
                f"A result has the format {result.get('format')!r}; this version reads 1 and 2."
            )
        convert(result, _Shown, f"The result of {result.get('name', 'a run')!r}")
        rows.append(
            (
                result["name"],
                result["trainer"],
                result["estimator"],
                str(result["seed"]),
                str(result["steps"]),
                success(result["before"]),
                success(result["after"]),
                f"{result['seconds']['train']:.0f}",
            )
        )
    return rows


def success(evaluation: Mapping[str, float] | None) -> str:
    """Return the success rate and its 95 % interval as ``0.510 [0.466, 0.554]``, ``-`` for none.

    Episodes that failed count as not solved; where there are any, their number follows.
    """
    if evaluation is None:
        return "-"
    low = evaluation["success/low"]
    high = evaluation["success/high"]
    shown = f"{evaluation['success/mean']:.3f} [{low:.3f}, {high:.3f}]"
    failed = sum(count_failures(evaluation).values())
    return f"{shown} ({failed} failed)" if failed else shown


def plain_table(head: Row, rows: Iterable[Row]) -> str:
    """Return a table whose columns are padded to their widest cell and separated by two spaces.

    >>> print(plain_table(("a", "name"), [("10", "x")]))
    a   name
    10  x
    """
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def markdown_table(head: Row, rows: Iterable[Row]) -> str:
    """Return a Markdown table that ends with a newline.

    >>> print(markdown_table(("a", "b"), [("1", "2")]), end="")
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines) + "\n"
