"""Tables and plots, made from run directories and result files alone."""

from __future__ import annotations

from gem_core.report.plots import learning_curve
from gem_core.report.record import record
from gem_core.report.tables import before_after, markdown_table, plain_table, result_rows

__all__ = [
    "before_after",
    "learning_curve",
    "markdown_table",
    "plain_table",
    "record",
    "result_rows",
]
