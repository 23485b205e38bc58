"""The sessions of a run: the processes that worked on it, one after another.

``sessions.jsonl`` has a line when a session begins, when each of its phases ends, and when it ends.
A session that was killed has no last line; the seconds of its training are estimated from the last
line that it wrote to ``metrics.jsonl``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gem_core.errors import RunError, error_line
from gem_core.runs.directory.files import append_line
from gem_core.runs.directory.records import SessionLine, StepLine
from gem_core.runs.directory.run_dir import SESSIONS_FILE, RunDir
from gem_core.runs.hardware import installed_versions
from gem_core.runs.provenance import commit
from gem_core.runs.redaction import redact_command, redact_text
from gem_core.training.stopping import RunStopped

KILLED = "killed"
"""Outcome of a session without a last line."""
_NEEDED = {"end": {"outcome"}, "phase": {"phase", "seconds"}}
"""Fields that a line of an event must have."""


@dataclass
class RunSession:
    """One session of a run.

    Attributes:
        began: seconds since the epoch.
        command: its command line.
        commit: see `gem_core.runs.provenance.commit`.
        versions: of the trainer and what it rests on.
        ended: seconds since the epoch; of a killed session when it last wrote something.
        outcome: ``finished``, ``stopped`` (SIGTERM), ``interrupted``, ``failed`` with the error, or
            `KILLED`.
        seconds: wall seconds by phase.
        estimated: whether some of them are estimated.
    """

    began: float
    command: list[str]
    commit: str | None
    versions: dict[str, str]
    ended: float
    outcome: str = KILLED
    seconds: dict[str, float] = field(default_factory=dict)
    estimated: bool = False

    def summary(self) -> dict[str, Any]:
        """Return what ``result.json`` holds of it."""
        return {
            "outcome": self.outcome,
            "commit": self.commit,
            "seconds": {phase: round(value, 2) for phase, value in self.seconds.items()},
            "estimated": self.estimated,
        }


class SessionLog:
    """Writes the session of this process.

    Args:
        run: the run directory. Of a run from before there were sessions the earlier work counts as
            one that was killed.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        if not (run.path / SESSIONS_FILE).exists() and run.metrics():
            info = run.info
            earlier = {key: info.get(key) for key in ("commit", "versions")}
            earlier["command"] = redact_command(info.get("command") or [])
            self._append("begin", earlier, info["started"])
        command = redact_command(sys.argv)
        session = {"command": command, "commit": commit(), "versions": installed_versions()}
        self._append("begin", session)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure a phase, also of one that ends with an error; two of a name are added up."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._append("phase", {"phase": name, "seconds": time.perf_counter() - began})

    def end(self, outcome: str) -> None:
        """Write how the session ended."""
        self._append("end", {"outcome": redact_text(outcome)})

    def _append(self, event: str, data: dict[str, Any], when: float | None = None) -> None:
        line = {"event": event, "time": time.time() if when is None else when, **data}
        append_line(self._run.path / SESSIONS_FILE, line)


@contextmanager
def recorded(run: RunDir) -> Iterator[SessionLog]:
    """Record what happens inside the block as a session of ``run``."""
    log = SessionLog(run)
    try:
        yield log
    except RunStopped:
        log.end("stopped")
        raise
    except Exception as error:
        log.end(f"failed: {error_line(error)}"[:500])
        raise
    except BaseException:
        log.end("interrupted")
        raise
    log.end("finished")


def read_sessions(run: RunDir) -> list[RunSession]:
    """Return the sessions of a run in their order; none for a run from before they were written."""
    sessions: list[RunSession] = []
    for line in run.lines(SESSIONS_FILE, SessionLine):
        when = line["time"]
        if line["event"] == "begin":
            versions = line.get("versions") or {}
            command, made_by = line.get("command") or [], line.get("commit")
            sessions.append(RunSession(when, command, made_by, versions, when))
            continue
        if not sessions or not line.keys() >= _NEEDED.get(line["event"], set()):
            raise RunError(f"{run.path / SESSIONS_FILE} is damaged: a {line['event']!r} line.")
        session = sessions[-1]
        session.ended = when
        if line["event"] == "end":
            session.outcome = line["outcome"]
        else:
            spent = session.seconds.get(line["phase"], 0.0)
            session.seconds[line["phase"]] = spent + line["seconds"]
    rows = run.lines("metrics.jsonl", StepLine)
    _estimate(sessions, [row["time"] for row in rows if row.get("time") is not None])
    return sessions


def _estimate(sessions: Sequence[RunSession], logged: Sequence[float]) -> None:
    """Add to killed sessions their training up to the last step that they logged."""
    for number, session in enumerate(sessions):
        following = sessions[number + 1].began if number + 1 < len(sessions) else float("inf")
        own = [when for when in logged if session.ended < when < following]
        if session.outcome == KILLED and own:
            spent = session.seconds.get("train", 0.0)
            session.seconds["train"] = spent + max(own) - session.ended
            session.ended = max(own)
            session.estimated = True


def total_seconds(sessions: Sequence[RunSession]) -> dict[str, float]:
    """Return the seconds of each phase, summed over sessions."""
    total: dict[str, float] = {}
    for session in sessions:
        for phase, spent in session.seconds.items():
            total[phase] = total.get(phase, 0.0) + spent
    return total
