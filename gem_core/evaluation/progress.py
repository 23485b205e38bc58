"""How far an evaluation is: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gem_core.evaluation.rows import ItemRow
from gem_core.runs.tracking.progress_bar import on_terminal, progress_bar

_EVERY_S = 10.0
"""Seconds between two lines, where there is no terminal."""


class _State:
    """What the items so far came to."""

    def __init__(self, done: int, every: int) -> None:
        self.done = done
        self.every = every
        self.results = 0
        self.successes = 0
        self.errors = 0

    def add(self, row: ItemRow) -> None:
        self.done += 1
        if row.error is not None:
            self.errors += 1
        else:
            self.results += 1
            self.successes += row.success

    def __str__(self) -> str:
        rate = f", success {self.successes / self.results:.3f}" if self.results else ""
        errors = f", {self.errors} errors" if self.errors else ""
        return f"{self.done}/{self.every} items{rate}{errors}"


@contextmanager
def show_progress(done: int, every: int) -> Iterator[Callable[[ItemRow], None]]:
    """Show how far it is on stderr; yield what is told of each item that is over.

    Of ``every`` item, ``done`` were over before.
    """
    state = _State(done, every)
    if on_terminal():
        with progress_bar(every, done) as update:

            def advance_bar(row: ItemRow) -> None:
                state.add(row)
                update(state.done, str(state))

            update(done, str(state))
            yield advance_bar
        return
    shown = time.monotonic()

    def advance_line(row: ItemRow) -> None:
        nonlocal shown
        state.add(row)
        if time.monotonic() - shown > _EVERY_S:
            shown = time.monotonic()
            print(state, file=sys.stderr, flush=True)

    yield advance_line
    if state.done > done:
        print(state, file=sys.stderr, flush=True)


@contextmanager
def no_progress(done: int, every: int) -> Iterator[Callable[[ItemRow], None]]:
    """Show nothing; the arguments are those of `show_progress`."""
    yield lambda row: None
