"""Tables and plots of runs, made only from run directories and result files."""

from __future__ import annotations

from gem_core.results.origin import origin_lines
from gem_core.results.plots import learning_curve
from gem_core.results.record import record
from gem_core.results.tables import before_after, markdown_table, plain_table, result_rows

__all__ = [
    "before_after",
    "learning_curve",
    "markdown_table",
    "origin_lines",
    "plain_table",
    "record",
    "result_rows",
]
