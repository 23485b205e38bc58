"""Lines of progress while a trainer trains, read from ``metrics.jsonl``.

Trainers log in processes of their own; the file is what they have in common.
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
"""Lines for a whole training."""


@contextmanager
def progress(run: RunDir, steps: int, say: Callable[[str], None]) -> Iterator[None]:
    """Tell about every tenth of the training that ends inside the ``with`` block.

    Args:
        run: where the trainer logs.
        steps: training steps of the whole run.
        say: receives each line.
    """
    over, logged = threading.Event(), len(run.metrics())
    thread = threading.Thread(target=_watch, args=(run, steps, say, over, logged), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(
    run: RunDir, steps: int, say: Callable[[str], None], over: threading.Event, first: int
) -> None:
    """Read until ``over``; ``first`` rows were there before this training."""
    began = time.monotonic()
    told, seen_bytes, last = first, -1, False
    every = max(1, steps // _LINES)
    while not last:
        last = over.wait(_POLL_S)
        size = _size(run)
        if size == seen_bytes:
            continue
        seen_bytes, rows = size, run.metrics()
        while told + every <= len(rows):
            told += every
            rate = (time.monotonic() - began) / (len(rows) - first)
            say(_line(rows[told - every : told], steps, rate))


def _size(run: RunDir) -> int:
    path = run.path / "metrics.jsonl"
    return path.stat().st_size if path.exists() else 0


def _line(rows: list[dict[str, Any]], steps: int, rate: float) -> str:
    """One line over the last ``rows``; ``rate`` is seconds per step."""
    step = rows[-1]["step"]
    shown = f"step {step:>{len(str(steps))}}/{steps}"
    for name in ("success/mean", "reward/mean", "turns/mean"):
        values = [row[name] for row in rows if name in row]
        if values:
            shown += f"  {name.partition('/')[0]} {sum(values) / len(values):.3f}"
    return f"{shown}  {rate:.2f} s/step, {max(0, steps - step) * rate:.0f} s left"
