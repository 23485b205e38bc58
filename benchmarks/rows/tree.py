"""The memory of a process and all that it started, followed while it runs."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress

import psutil

_EVERY_S = 0.2


class Memory:
    """Samples of the proportional set size (PSS) of a process and its descendants.

    A page that several processes share counts once in the sum. What a descendant's parent left
    behind by ending is no longer found; the trainers' processes do not do that while they train.

    Attributes:
        samples: (seconds since the epoch, bytes) in the order of time.
    """

    def __init__(self, root: int) -> None:
        self.samples: list[tuple[float, int]] = []
        self._root = psutil.Process(root)

    def follow(self, process: subprocess.Popen[bytes], limit_s: float) -> None:
        """Take samples until the process ends.

        Raises:
            RuntimeError: it took longer than ``limit_s`` seconds.
        """
        ends = time.monotonic() + limit_s
        while process.poll() is None:
            if time.monotonic() > ends:
                raise RuntimeError(f"the run took longer than {limit_s:g} s.")
            if (size := self._now()) is not None:
                self.samples.append((time.time(), size))
            time.sleep(_EVERY_S)

    def between(self, first: float, last: float) -> tuple[int, int]:
        """Return the least and the most bytes of the samples from ``first`` to ``last``.

        Raises:
            RuntimeError: there are fewer than ten.
        """
        found = [size for moment, size in self.samples if first <= moment <= last]
        if len(found) < 10:
            raise RuntimeError(f"{len(found)} samples of memory are too few: train more episodes.")
        return min(found), max(found)

    def _now(self) -> int | None:
        """Return the bytes of all processes; ``None`` if the first one has ended."""
        try:
            total: int = self._root.memory_full_info().pss
            descendants = self._root.children(recursive=True)
        except psutil.NoSuchProcess:  # a zombie included
            return None
        for process in descendants:
            with suppress(psutil.NoSuchProcess):  # it ended between the two calls
                total += process.memory_full_info().pss
        return total
