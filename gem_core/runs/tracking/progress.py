"""Log progress while a trainer trains.

It is read from ``metrics.jsonl``, because trainers may log in processes of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.tracking.progress_bar import on_terminal, progress_bar
from gem_core.runs.tracking.watch import watched

_POLL_S = 0.5
_LINES = 10
"""Number of lines for a whole training."""


@contextmanager
def progress(run: RunDir, steps: int, log: Callable[[str], None]) -> Iterator[None]:
    """Show the training inside the ``with`` block: a bar on a terminal, else a line each tenth.

    A bar is drawn only if ``log``, which receives each line, is `print`.
    """
    files = [run.path / "metrics.jsonl"]
    if log is print and on_terminal():
        with progress_bar(steps, len(run.metrics())) as update:
            drawn = _Progress(run, steps, lambda line: update(len(run.metrics()), line), 1)
            with watched(files, drawn.update, _POLL_S):
                yield
        return
    with watched(files, _Progress(run, steps, log, max(1, steps // _LINES)).update, _POLL_S):
        yield


class _Progress:
    """What was logged of a training, ``every`` steps; rows from before it do not count."""

    def __init__(self, run: RunDir, steps: int, log: Callable[[str], None], every: int) -> None:
        self._run = run
        self._steps = steps
        self._log = log
        self._every = every
        self._first = self._reported = len(run.metrics())
        self._began = time.monotonic()

    def update(self) -> None:
        """Log the lines that are due."""
        rows = self._run.metrics()
        while self._reported + self._every <= len(rows):
            self._reported += self._every
            rate = (time.monotonic() - self._began) / (len(rows) - self._first)
            due = rows[self._reported - self._every : self._reported]
            self._log(_line(due, self._steps, rate))


def _line(rows: list[dict[str, Any]], steps: int, rate: float) -> str:
    """Return one line with the means of ``rows``; ``rate`` is seconds per step."""
    step = rows[-1]["step"]
    line = f"step {step:>{len(str(steps))}}/{steps}"
    for name in ("success/mean", "reward/mean", "turns/mean"):
        values = [row[name] for row in rows if name in row]
        if values:
            line += f"  {name.partition('/')[0]} {sum(values) / len(values):.3f}"
    return f"{line}  {rate:.2f} s/step, {max(0, steps - step) * rate:.0f} s left"
