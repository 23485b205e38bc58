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

LOCK_FILE = "run.lock"
"""Its text says which process holds or last held the lock; the file remains after a run."""


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
        with path.open("a+", encoding="utf-8") as file:
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
        holder = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError:  # the process is about to write it
        return "another process"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since"]))
    return f"process {holder['pid']} on {holder['host']} since {since}"
