"""Why a cell failed: the error in its log."""

from __future__ import annotations

import re
from pathlib import Path

_ERROR = re.compile(r"^(?:\(.*?\) *)?(?:[\w.]*(?:Error|Exception|Interrupt)|gem-core)\b[^:]*: \S")
"""A line that reports an error, perhaps after Ray's ``(Actor pid=1)``."""
_EPILOGUES = ("ChildFailedError", "RayTaskError", "CalledProcessError", "resource_tracker")
"""Errors that only report another one."""


def error_line(log: str) -> str:
    """Return the line of a log that names the reason of a failure: its last error, no epilogue.

    Without such a line, the last line that is not empty is returned.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [
        line
        for line in lines
        if _ERROR.search(line) and not any(name in line for name in _EPILOGUES)
    ]
    return (errors or lines or ["no output"])[-1][:300]


def failure_reason(directory: Path) -> str:
    """Return why the cell in ``directory`` failed, from its log."""
    return error_line((directory / "log.txt").read_text(errors="replace"))
