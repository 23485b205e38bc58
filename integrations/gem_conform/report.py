"""The report of a conformance run: Markdown to attach to an issue, JSON for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gem_conform.candidate import Candidate
from gem_conform.checks import CheckOutcome, describe
from gem_core.runs import trainers
from gem_core.runs.hardware import describe_machine

FORMAT = 1
"""Increase it when the meaning of a field changes."""
_MACHINE = ("platform", "processor", "cores", "python", "versions", "commit")


def make_report(candidate: Candidate, outcomes: Sequence[CheckOutcome]) -> dict[str, Any]:
    """Return the report as plain data."""
    machine = describe_machine()
    return {
        "format": FORMAT,
        "trainer": candidate.name,
        "distribution": candidate.trainer.distribution,
        "version": trainers.check(candidate.trainer).version,
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "overrides": list(candidate.overrides),
        "cases": list(candidate.cases),
        "machine": {key: machine[key] for key in _MACHINE if key in machine},
        "checks": [asdict(outcome) for outcome in outcomes],
    }


def summarize(outcomes: Sequence[CheckOutcome]) -> str:
    """Return how many checks came to what.

    >>> summarize([CheckOutcome("keys", "passed", "", 0.1)])
    '1 passed, 0 failed, 0 not applicable'
    """
    counts: Counter[str] = Counter(outcome.status for outcome in outcomes)
    return ", ".join(f"{counts[status]} {status}" for status in _STATUSES)


_STATUSES = ("passed", "failed", "not applicable")


def as_markdown(report: dict[str, Any]) -> str:
    """Return the report as a page."""
    outcomes = [CheckOutcome(**row) for row in report["checks"]]
    machine = report["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = [
        f"# Conformance of the trainer {report['trainer']}\n",
        f"{summarize(outcomes)}. Made by `gem-core conform {report['trainer']}` at {report['at']}.",
        f"{report['distribution']} {report['version']}; Python {machine['python']}; {versions}.",
        f"{machine.get('processor', '')}, {machine.get('platform', '')}.",
    ]
    if report["overrides"]:
        lines.append(f"Overrides of every recipe: `{' '.join(report['overrides'])}`.")
    if report["cases"]:
        lines.append(f"Only these cases of the checks: {', '.join(report['cases'])}.")
    lines += ["", "| check | what it says | came to | seconds |", "|---|---|---|---|"]
    lines += [f"| {o.name} | {describe(o.name)} | {o.status} | {o.seconds:.1f} |" for o in outcomes]
    for outcome in outcomes:
        lines += ["", f"## {outcome.name}: {outcome.status}", "", _shown(outcome.reason)]
    return "\n".join(lines) + "\n"


def _shown(reason: str) -> str:
    return reason if "\n" not in reason else f"```\n{reason}\n```"


def write_report(report: dict[str, Any], folder: Path) -> Path:
    """Write ``conformance.json`` and ``conformance.md``; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "conformance.json"
    data.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    page = folder / "conformance.md"
    page.write_text(as_markdown(report), encoding="utf-8")
    return page
