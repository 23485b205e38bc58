"""The table of ``docs/conformance.md`` that `conformed.py` generates from its trials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem_core.runs import provenance

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
BEGIN = "<!-- begin: python benchmarks/parity/conformed.py --page -->\n"
END = "<!-- end -->\n"
_SAID = 130
"""Characters of what a check says."""


def write(trials: Mapping[str, Mapping[str, Any]], beyond: Mapping[str, str]) -> None:
    """Put the table in its place in the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + table(trials, beyond) + END + after, encoding="utf-8")


def table(trials: Mapping[str, Mapping[str, Any]], beyond: Mapping[str, str]) -> str:
    """Return the table: one row per fault and check.

    Args:
        trials: of ``conformed.json``.
        beyond: fault that the kit does not see -> why.
    """
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for trial in trials.values():
        if trial["fault"]:
            rows.setdefault((trial["fault"], _check(trial)), []).append(trial)
    lines = ["| fault | found in | by | what it says in the first |", "|---|---|---|---|"]
    for (fault, check), found in sorted(rows.items()):
        found.sort(key=lambda trial: trial["trainer"])
        places = ", ".join(_place(trial) for trial in found)
        said = next((_said(trial["reason"]) for trial in found if _found(trial)), "")
        if not said:
            said = beyond.get(fault, "")
        lines.append(f"| {fault} | {places} | {check} | {said} |")
    return "\n".join(["", summary(trials), "", *lines, ""])


def summary(trials: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what was tried, and at which commits."""
    faulty = [trial for trial in trials.values() if trial["fault"]]
    sound = [trial for trial in trials.values() if not trial["fault"]]
    per_trainer = ", ".join(
        f"{name} {sum(_found(t) for t in faulty if t['trainer'] == name)} of "
        f"{sum(t['trainer'] == name for t in faulty)}"
        for name in sorted({trial["trainer"] for trial in faulty})
    )
    commits = ", ".join(sorted({provenance.short(t["commit"]) for t in trials.values()}))
    passed = sum(trial["status"] == "passed" for trial in sound)
    return (
        f"Found: {per_trainer}. Without a fault {passed} of {len(sound)} calls of the same checks "
        f"pass. Commit {commits}."
    )


def _found(trial: Mapping[str, Any]) -> bool:
    return bool(trial["status"] == "failed" and trial["code"] == 1)


def _check(trial: Mapping[str, Any]) -> str:
    return f"{trial['check']}: {trial['case']}" if trial["case"] else str(trial["check"])


def _place(trial: Mapping[str, Any]) -> str:
    return str(trial["trainer"]) if _found(trial) else f"**not in {trial['trainer']}**"


def _said(reason: str) -> str:
    text = " ".join(reason.split()).removeprefix("differs from the reference: ")
    short = text if len(text) <= _SAID else f"{text[:_SAID].rstrip()}..."
    return short.replace("|", "\\|")
