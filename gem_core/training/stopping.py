"""Save by time, and save and end on SIGTERM, in whatever process a trainer trains.

The process that was started (``gem-core train``, a script in recipes/) takes the signal and writes
`STOP_FILE` into the run directory. Training may happen in other processes, on other machines; after
each step one of them asks a `SaveClock`, and the adapter saves and ends in its trainer's own way.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

from gem_core.errors import RunError
from gem_core.runs.directory.run_dir import STOP_FILE, STOPPED_FILE, RunDir

EXIT_CODE = 75
"""Exit code of a run that was stopped and can be resumed (EX_TEMPFAIL: try again)."""

_NOTICE = (
    b"gem-core: SIGTERM: training saves a checkpoint after this step and ends; a second SIGTERM "
    b"ends it now.\n"
)


class RunStopped(RunError):
    """A run that ended before its last step because it was asked to, with a checkpoint."""

    exit_code = EXIT_CODE

    def __init__(self, run: str, step: int, steps: int) -> None:
        super().__init__(run, step, steps)  # an exception is pickled by its arguments
        self.step = step

    def __str__(self) -> str:
        run, step, steps = self.args
        return (
            f"{run} was stopped after step {step} of {steps}, and has a checkpoint of it. Continue "
            "it with --resume."
        )


class Decision(NamedTuple):
    """What to do after a training step.

    Attributes:
        save: write a checkpoint. At an interval of ``train.save_every`` it is true, too.
        stop: end after it.
    """

    save: bool
    stop: bool


class SaveClock:
    """Decides after each training step whether to save, and whether to end.

    One process of a run asks it. Where saving is a collective call of several, the adapter shares
    the decision with them, since their clocks differ.

    Args:
        run: the run directory; the clock starts now.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._settings = run.recipe.train
        self._saved = time.monotonic()

    def after(self, step: int) -> Decision:
        """Decide about training step ``step`` (from 1), whose update is made."""
        settings = self._settings
        stop = step < settings.steps and stop_requested(self._run)
        regular = bool(settings.save_every) and step % settings.save_every == 0
        age = time.monotonic() - self._saved
        overdue = bool(settings.save_minutes) and age >= 60 * settings.save_minutes
        if stop or regular or overdue:
            self._saved = time.monotonic()
            return Decision(True, stop)
        return Decision(False, False)


def stop_requested(run: RunDir) -> bool:
    """Return whether the run is asked to save and end."""
    return (run.path / STOP_FILE).exists()


def mark_stopped(run: RunDir, step: int) -> RunStopped:
    """Record that training ends, as asked, with a checkpoint of training step ``step``.

    Returns:
        The exception with which an adapter may end its trainer's loop.
    """
    (run.path / STOPPED_FILE).write_text(json.dumps({"step": step}) + "\n", encoding="utf-8")
    (run.path / STOP_FILE).unlink(missing_ok=True)
    return _stopped(run, step)


def _stopped(run: RunDir, step: int) -> RunStopped:
    return RunStopped(str(run.path), step, run.recipe.train.steps)


def stopped_step(run: RunDir) -> int | None:
    """Return the step with whose checkpoint training ended as asked, ``None`` if it did not."""
    path = run.path / STOPPED_FILE
    if not path.exists():
        return None
    return int(json.loads(path.read_text(encoding="utf-8"))["step"])


@contextmanager
def stop_on_sigterm(run: RunDir) -> Iterator[None]:
    """Inside the block, SIGTERM lets training save after its step and end; a second one ends now.

    Outside of the main thread, where Python sets no handlers, a stop is asked for by the file only.

    Args:
        run: the run directory; a request of an earlier session is deleted.

    Raises:
        RunStopped: training ended as asked.
    """
    for name in (STOP_FILE, STOPPED_FILE):
        (run.path / name).unlink(missing_ok=True)
    try:
        with _kept(_handler(run)):
            yield
    except Exception as error:
        step = stopped_step(run)
        if step is not None:  # some trainers end with an error then
            raise _stopped(run, step) from error
        raise
    step = stopped_step(run)
    if step is None and stop_requested(run):
        step = run.recipe.train.steps  # the signal came in or after the last step
    if step is not None:
        raise _stopped(run, step)


_Handler = Callable[[int, FrameType | None], Any]


def _handler(run: RunDir) -> _Handler:
    """Return the handler of SIGTERM for this process."""
    owner = os.getpid()
    before: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a forked child inherits this; it ends as it would without
            os._exit(128 + number)
        if before:
            sys.exit(128 + number)
        before.append(number)
        (run.path / STOP_FILE).touch()
        os.write(2, _NOTICE)  # print may be under way

    return stop


def retake_sigterm() -> None:
    """Take SIGTERM back inside of `stop_on_sigterm` from what took it below Python (Ray's core)."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


@contextmanager
def _kept(handler: _Handler) -> Iterator[None]:
    """Have ``handler`` take SIGTERM, also where a library (Ray, launchpad) sets its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    register = signal.signal
    before = register(signal.SIGTERM, handler)

    def keep(number: int, new: Any) -> Any:
        return register(number, handler if number == signal.SIGTERM else new)

    try:
        with patch.object(signal, "signal", keep):
            yield
    finally:
        register(signal.SIGTERM, before or signal.SIG_DFL)
