"""From which commits results come, and which of their seconds are sums or estimates, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gem_core.runs.provenance import is_dirty, origins

Result = Mapping[str, Any]


def commit_of(result: Result) -> str | None:
    """Return the commit of a result: of several sessions a dirty one, or else the last."""
    sessions = result.get("sessions") or [result]
    commits: list[str | None] = [session.get("commit") for session in sessions]
    return next((name for name in commits if is_dirty(name)), commits[-1])


def origin_lines(results: Iterable[Result]) -> list[str]:
    """Return what a reader of a table of results must know about them; nothing for no result.

    >>> whole = {"commit": "0123456789ab", "sessions": [{"commit": "0123456789ab"}]}
    >>> origin_lines([whole])
    ['Commits of the results: 0123456789 (1); none is dirty.']
    >>> origin_lines([{"commit": "0123456789ab", "resumed": True}])[1]
    'Resumed in an older version, so that their seconds are those of the last session: 1 of 1.'
    """
    known = list(results)
    if not known:
        return []
    lines = [f"Commits of the results: {origins(map(commit_of, known))}."]
    lines += _count(
        known,
        lambda result: len(result.get("sessions", ())) > 1,
        "Of several sessions, whose seconds are added up",
    )
    lines += _count(
        known,
        lambda result: any(session.get("estimated") for session in result.get("sessions", ())),
        "With a killed session, whose seconds are estimated from its last step",
    )
    lines += _count(
        known,
        lambda result: bool(result.get("resumed")),
        "Resumed in an older version, so that their seconds are those of the last session",
    )
    return lines


def _count(results: list[Result], holds: Callable[[Result], bool], what: str) -> list[str]:
    count = sum(holds(result) for result in results)
    return [f"{what}: {count} of {len(results)}."] if count else []
