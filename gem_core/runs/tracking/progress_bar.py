"""A progress bar on a terminal; nothing elsewhere, where the caller prints lines instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

Update = Callable[[int, str], None]
"""Takes how much is done, and what it came to so far."""


def on_terminal() -> bool:
    """Return whether a bar can be drawn: stderr is a terminal, and `rich` is installed."""
    return sys.stderr.isatty() and find_spec("rich") is not None


@contextmanager
def progress_bar(total: int, done: int = 0) -> Iterator[Update]:
    """Draw a bar on stderr while the block runs; lines that are printed meanwhile go above it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Description(TextColumn):
        """The description as it is: names and errors are not markup."""

        def render(self, task: object) -> Text:
            return Text(task.description)  # type: ignore[attr-defined]

    columns = (Description(""), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total, completed=done)

        def update(completed: int, text: str) -> None:
            progress.update(task, completed=completed, description=text)

        yield update
