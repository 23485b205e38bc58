"""A lock that keeps a second process out of a run directory."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from gem_core.errors import RunError
from gem_core.runs.directory.files import open_file, open_to_append

LOCK_FILE = "run.lock"
"""Its text says which process holds or last held the lock; the file remains after a run."""

_HOLDER_BYTES = 4096


@contextmanager
def exclusive(run: str | Path) -> Iterator[None]:
    """Hold the lock of a run directory; the system releases it when the process ends, or is killed.

    After an exception a directory with nothing but the lock is deleted.

    Args:
        run: the run directory; it is created if it does not exist.

    Raises:
        RunError: another process holds the lock; the message says which.
    """
    path = Path(run) / LOCK_FILE
    with _locked(path) as file:
        file.truncate(0)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        file.write(json.dumps(holder) + "\n")
        file.flush()
        try:
            yield
        except BaseException:
            _remove_if_alone(path)
            raise


@contextmanager
def _locked(path: Path) -> Iterator[TextIO]:
    """Open and lock the file; again where its last holder deleted it in between."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(open_to_append(path), "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(
                    f"{path.parent} is in use by {_holder(path)}: wait until it ends, end it, or "
                    "choose another directory."
                ) from None
            if os.fstat(file.fileno()).st_nlink:
                yield file
                return


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
    except (ValueError, TypeError, LookupError, OverflowError):  # it is about to be written
        return "another process"
    return f"process {holder['pid']} on {holder['host']} since {since}"
