"""Log progress while a trainer trains.

It is read from ``metrics.jsonl``, because trainers may log in processes of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gem_core.training.runs import RunDir

_POLL_S = 0.5
_LINES = 10
"""Number of lines for a whole training."""


@contextmanager
def progress(run: RunDir, steps: int, log: Callable[[str], None]) -> Iterator[None]:
    """Log each tenth of the training that is finished inside the ``with`` block.

    Args:
        run: the run directory to which the trainer logs.
        steps: training steps of the whole run.
        log: receives each line.
    """
    over = threading.Event()
    logged = len(run.metrics())
    thread = threading.Thread(target=_watch, args=(run, steps, log, over, logged), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(
    run: RunDir, steps: int, log: Callable[[str], None], over: threading.Event, first: int
) -> None:
    """Read the metrics until ``over``; ``first`` rows existed before this training."""
    began = time.monotonic()
    reported = first
    old_size = -1
    last = False
    every = max(1, steps // _LINES)
    while not last:
        last = over.wait(_POLL_S)
        size = _size(run)
        if size == old_size:
            continue
        old_size = size
        rows = run.metrics()
        while reported + every <= len(rows):
            reported += every
            rate = (time.monotonic() - began) / (len(rows) - first)
            log(_line(rows[reported - every : reported], steps, rate))


def _size(run: RunDir) -> int:
    path = run.path / "metrics.jsonl"
    return path.stat().st_size if path.exists() else 0


def _line(rows: list[dict[str, Any]], steps: int, rate: float) -> str:
    """Return one line with the means of ``rows``; ``rate`` is seconds per step."""
    step = rows[-1]["step"]
    line = f"step {step:>{len(str(steps))}}/{steps}"
    for name in ("success/mean", "reward/mean", "turns/mean"):
        values = [row[name] for row in rows if name in row]
        if values:
            line += f"  {name.partition('/')[0]} {sum(values) / len(values):.3f}"
    return f"{line}  {rate:.2f} s/step, {max(0, steps - step) * rate:.0f} s left"
