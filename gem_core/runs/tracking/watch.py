"""Follow the files that a run appends to, in a thread, while it trains."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def watched(files: Sequence[Path], changed: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call ``changed`` inside the ``with`` block whenever the size of a file has changed.

    It is called in a thread, a last time after the block if there is still something new. The
    files, which need not exist yet, are looked at every ``every_s`` seconds.
    """
    over = threading.Event()

    def work() -> None:
        before = None
        last = False
        while not last:
            last = over.wait(every_s)
            sizes = [_size(path) for path in files]
            if sizes != before:
                before = sizes
                changed()

    thread = threading.Thread(target=work, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1
