"""Small runs that are made beside the checks that measure in this process.

A run of a trainer is a process of its own, and takes most of the kit's time where the trainer
starts Ray. On a machine with another core the runs that later checks look at begin at once, one
after the other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from gem_conform.candidate import Candidate
from gem_conform.trained import FIRST, STOPPED

RUNS: dict[str, dict[str, tuple[str, ...]]] = {
    "result": {"first": FIRST},
    "repeat": {"first": FIRST, "again": FIRST},
    "lockstep": {"first": FIRST},
    "resume": {"whole": STOPPED},
}
"""Check -> the runs that it looks at, with their overrides; others it makes itself."""
_LOOK_S = 0.05


@contextmanager
def runs_ahead(candidate: Candidate, checks: Collection[str]) -> Iterator[None]:
    """Inside the block, the runs of the chosen checks are made; at its end none goes on.

    What came of a run is told by `Candidate.run`, in the check that asks for it.
    """
    wanted = {run: texts for check in checks for run, texts in RUNS.get(check, {}).items()}
    if not wanted or len(os.sched_getaffinity(0)) < 2:
        yield
        return
    with ThreadPoolExecutor(1, thread_name_prefix="small-runs") as pool:
        for run, texts in wanted.items():
            candidate.ahead[run] = pool.submit(candidate.start, run, *texts)
        begun = tuple(candidate.ahead.values())
        try:
            yield
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(one.done() for one in begun):  # one may be about to start
                candidate.end_runs()
                time.sleep(_LOOK_S)
