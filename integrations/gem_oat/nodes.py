"""Oat's processes: launchpad in a program of its own, and a watchdog that leaves none behind.

``launchpad.launch`` returns at once, while its nodes run on; where a node takes more than ten
seconds to stop, launchpad ends its own process by SIGKILL; and a launchpad that is killed leaves
its nodes alone. So it runs in a child program that waits for the nodes, whose exit code says
nothing (a run is judged by its model), and a watchdog ends what is left.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gem_core.errors import GemError
from gem_core.runs.program import run_process
from gem_oat import watchdog

GRACE_S = 15.0
"""Seconds that nodes have to end; launchpad itself gives them ten."""
PATIENCE_S = 600.0
"""Seconds in which the other learners may end after the first one did."""
_POLL_S = 0.5


def run_nodes(
    program: Any, resources: Mapping[str, Any], launch_type: str, patience: float = PATIENCE_S
) -> None:
    """Launch a program of launchpad and wait for its nodes.

    Launchpad takes every end of a node for a good one. Here a node that ends before the program was
    stopped ends the program: at once, or, if only learners ended, after ``patience``, in which the
    first learner may still be saving.

    Args:
        program: the program.
        resources: of each node, by label.
        launch_type: launchpad's name of it.
        patience: seconds.

    Raises:
        GemError: a node ended before the program was stopped.
    """
    import launchpad as lp

    manager: Any = lp.launch(
        program,
        launch_type=launch_type,
        local_resources=resources,
        terminal="current_terminal",
    )
    if manager is None:
        return  # a launchpad that waits itself
    manager.wait(return_on_first_completed=True, raise_error=False)
    first = ", ".join(_ended(manager))
    until = time.monotonic() + (patience if _only_learners(manager) else 0.0)
    while not manager.stop_event().is_set() and _running(manager) and time.monotonic() < until:
        time.sleep(_POLL_S)
        manager.wait(return_on_first_completed=True, raise_error=False)  # looks who is there
        if not _only_learners(manager):
            break
    failed = not manager.stop_event().is_set() and bool(_running(manager))
    if failed:
        manager.stop_and_wait()
    manager.wait(raise_error=False)
    if failed:
        raise GemError(f"{first} ended before Oat stopped its program; the output above says why.")


def _running(manager: Any) -> list[str]:
    return [label for label, workers in manager._active_workers.items() if workers]


def _ended(manager: Any) -> list[str]:
    return [label for label, workers in manager._active_workers.items() if not workers]


def _only_learners(manager: Any) -> bool:
    return all(label.startswith("learner") for label in _ended(manager))


def stop_on_failure(run: Callable[[], None]) -> None:
    """Call a learner's ``run``; stop the program of `run_watched` if it raises.

    Other learners would wait for this one in their next collective operation.
    """
    try:
        run()
    except BaseException:
        if watchdog.VARIABLE in os.environ:
            import launchpad as lp

            lp.stop()
        raise


def run_watched(command: Sequence[str], grace: float = GRACE_S) -> int:
    """Run ``command`` to its end; return its exit code when none of its processes is left.

    Args:
        command: a program that calls `run_nodes`.
        grace: seconds between SIGTERM and SIGKILL for what it leaves behind.
    """
    with watched(grace) as mark:
        return run_process(command, {**os.environ, watchdog.VARIABLE: mark})


@contextmanager
def watched(grace: float = GRACE_S) -> Iterator[str]:
    """Have the processes that get the mark ended after the block, or after this process.

    Yields:
        the value of `gem_oat.watchdog.VARIABLE` in their environment.
    """
    mark = uuid.uuid4().hex
    command = [sys.executable, "-I", str(Path(watchdog.__file__)), mark, str(grace)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    try:
        yield mark
    finally:
        process.stdin.close()
        process.wait()
