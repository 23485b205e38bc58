"""What installed packages offer: their entry points, read once."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points


def list_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group.

    They are read again only after a folder of ``sys.path`` changed, as Python's own finder of
    packages does it: reading takes tens of milliseconds, and every recipe and every tool asks.
    """
    return _read(group, tuple((path, _mtime(path)) for path in sys.path))


@lru_cache(maxsize=16)
def _read(group: str, state: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _mtime(path: str) -> int:
    """Return when something was added to a folder or removed, in nanoseconds; 0 if never."""
    try:
        return os.stat(path or ".").st_mtime_ns
    except OSError:
        return 0
