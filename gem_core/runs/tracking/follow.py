"""Follow the files of a run and send each new line to its trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

import msgspec

from gem_core.errors import RunError
from gem_core.runs.directory.files import convert, read_object, write_object
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.files import flatten
from gem_core.runs.tracking.trackers import RunFacts, Tracker, open_tracker
from gem_core.runs.tracking.watch import watched

STATE = "trackers.json"
"""File of the run: tracker -> its name of the run, and what it has received."""
_POLL_S = 1.0


class _State(msgspec.Struct):
    """What `STATE` holds of a tracker."""

    id: str = ""
    step: int = 0
    evals: list[str] = []


class _Sender:
    """One tracker of one run.

    An error of the tracker ends the sending, never the run: the files of the run have everything,
    and what was not received is sent when the run is resumed, or by ``gem-core track``.
    """

    def __init__(self, name: str, run: RunDir, project: str) -> None:
        self.name = name
        self.error = ""
        self._run = run
        self._state = _read(run).get(name, _State())
        params = {"trainer": run.info["trainer"], **flatten(run.recipe.to_dict())}
        facts = RunFacts(run.path.name, project, run.path, params, self._state.id)
        self._tracker: Tracker = open_tracker(name, facts)

    def send(self) -> None:
        """Send the rows that the tracker does not have yet."""
        if self.error:
            return
        try:
            self._send_rows()
        except Exception as error:  # a tracker's own: anything, from a package of its own
            self.error = f"{type(error).__name__}: {error}"
        self._write()

    def close(self) -> None:
        """Send the rest, and end."""
        self.send()
        try:
            self._tracker.close()
        except Exception as error:
            self.error = self.error or f"{type(error).__name__}: {error}"
        self._write()

    def _send_rows(self) -> None:
        """Send in the order of the steps, an evaluation after the step it follows.

        A step that a resumed run repeats is not sent again: trackers keep the first values.
        """
        rows = [
            (row["step"], "", row) for row in self._run.metrics() if row["step"] > self._state.step
        ]
        for row in self._run.evals():
            key = f"{row['when']} {row['step']}"
            if key not in self._state.evals:
                rows.append((row["step"], key, row))
        for step, key, row in sorted(rows, key=lambda entry: entry[:2]):
            self._tracker.log(step, _numbers(row, "eval/" if key else ""))
            if key:
                self._state.evals.append(key)
            else:
                self._state.step = step

    def _write(self) -> None:
        self._state.id = self._tracker.id
        states = {**_read(self._run), self.name: self._state}
        write_object(self._run.path / STATE, msgspec.to_builtins(states))


@contextmanager
def tracked(run: RunDir, log: Callable[[str], None]) -> Iterator[None]:
    """Send what is recorded inside the ``with`` block to the trackers of the run's recipe.

    Raises:
        MissingDependencyError: before the block, if a tracker's package is not installed.
    """
    track = run.recipe.track
    senders = [_Sender(name, run, track.project) for name in track.to]
    if not senders:
        yield
        return

    def send_all() -> None:
        for sender in senders:
            sender.send()

    files = [run.path / name for name in ("metrics.jsonl", "evals.jsonl")]
    try:
        with watched(files, send_all, _POLL_S):
            yield
    finally:
        _close(senders, run, log)


def send(run: RunDir, names: Sequence[str], project: str, log: Callable[[str], None]) -> bool:
    """Send to trackers what they have not received of a run; return whether they have all."""
    senders = [_Sender(name, run, project) for name in names]
    _close(senders, run, log)
    return not any(sender.error for sender in senders)


def _close(senders: Sequence[_Sender], run: RunDir, log: Callable[[str], None]) -> None:
    for sender in senders:
        sender.close()
        if sender.error:
            log(
                f"{sender.name} did not receive everything ({sender.error}). The run directory has "
                f"it all: gem-core track {run.path} --to {sender.name} sends the rest."
            )


def _numbers(row: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Return the numbers of a row under their names."""
    left_out = ("step", "time", "when")
    return {
        f"{prefix}{name}": float(value)
        for name, value in row.items()
        if name not in left_out and isinstance(value, Real) and not isinstance(value, bool)
    }


def _read(run: RunDir) -> dict[str, _State]:
    path = run.path / STATE
    try:
        return convert(read_object(path), dict[str, _State], str(path))
    except FileNotFoundError:
        return {}
    except RunError as error:
        raise RunError(f"{error} Delete it, and everything is sent again.") from error
