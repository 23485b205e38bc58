"""A lock that keeps a second process out of a directory."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from gem_core.errors import RunError
from gem_core.runs.directory.files import open_file, open_to_append

LOCK_FILE = "run.lock"
"""Its text says which process holds or last held the lock; the file remains after a run."""

_HOLDER_BYTES = 4096
_TRY_S = 0.05
"""Seconds for which a lock is tried, because its last holder may just be deleting the file."""


@contextmanager
def exclusive(run: str | Path) -> Iterator[None]:
    """Hold the lock of a run directory; the system releases it when the process ends, or is killed.

    After an exception a directory with nothing but the lock is deleted. The directory is created if
    it does not exist.

    Raises:
        RunError: another process holds the lock; the message says which.
    """
    path = Path(run) / LOCK_FILE

    def refuse(holder: str) -> str:
        advice = "wait until it ends, end it, or choose another directory."
        return f"{path.parent} is in use by {holder}: {advice}"

    with hold(path, refuse):
        try:
            yield
        except BaseException:
            _remove_if_alone(path)
            raise


@contextmanager
def hold(path: Path, refuse: Callable[[str], str]) -> Iterator[None]:
    """Hold a lock whose file says which process holds it.

    A child that was forked from the process does not hold it: it ends with the process itself.

    Args:
        path: the file of the lock; its directory is created if it does not exist.
        refuse: returns the message of the error, from which process holds the lock.

    Raises:
        RunError: another process holds the lock, or the file is a link.
    """
    lock = FileLock(
        path, _TRY_S, poll_interval=_TRY_S / 5, thread_local=False, fallback_to_soft=False
    )
    try:
        _acquire(lock, path)
    except Timeout:
        raise RunError(refuse(_holder(path))) from None
    try:
        _write_holder(path)
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, path: Path) -> None:
    """Take the lock; again where its last holder deleted the directory in between."""
    while not lock.is_locked:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(open_to_append(path))  # refuses what is not a regular file
        try:
            lock.acquire()
        except FileNotFoundError:
            continue
        except Timeout:
            if path.exists():
                raise


def _write_holder(path: Path) -> None:
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
    with os.fdopen(open_to_append(path), "a", encoding="utf-8") as file:
        file.truncate(0)
        file.write(json.dumps(holder) + "\n")


def _remove_if_alone(path: Path) -> None:
    """Delete the lock and its directory if there is nothing else, as after a recipe is refused."""
    if [entry.name for entry in path.parent.iterdir()] == [LOCK_FILE]:
        path.unlink()
        path.parent.rmdir()


def _holder(path: Path) -> str:
    """Return what the lock file says about the process that holds the lock."""
    try:
        with open_file(path) as file:
            holder = json.loads(file.read(_HOLDER_BYTES))
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since"]))
    except (ValueError, TypeError, LookupError, OverflowError, FileNotFoundError):
        # it is about to be written, or was deleted
        return "another process"
    return f"process {holder['pid']} on {holder['host']} since {since}"
