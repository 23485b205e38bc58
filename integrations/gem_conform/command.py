"""``gem-core conform``: run the checks on a trainer, print each, write the report."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gem_core.cli.output import print_json, progress_lines, quiet_libraries
from gem_core.errors import GemError


def conform(arguments: argparse.Namespace) -> int:
    """Check a trainer; return 1 if a check fails."""
    from gem_conform.candidate import ON_A_CPU, Candidate
    from gem_conform.cases import require_cases
    from gem_conform.checks import choose, describe, run_checks
    from gem_conform.report import make_report, summarize, write_report

    names = choose(arguments.only)
    if arguments.list:
        print("\n".join(f"{name}: {describe(name)}" for name in names))
        return 0
    if arguments.trainer is None:
        raise GemError("Name a trainer: `gem-core list --kind trainers` lists those installed.")
    quiet_libraries()
    for variable, value in ON_A_CPU.items():
        os.environ.setdefault(variable, value)
    out = arguments.out or Path("runs") / f"conform-{arguments.trainer}"
    candidate = Candidate(
        arguments.trainer, out / "runs", tuple(arguments.overrides), tuple(arguments.cases)
    )
    _ = candidate.trainer  # an unknown name is an error, and no report
    candidate.recipe()
    if candidate.cases:
        require_cases(candidate)
    tell = progress_lines()
    outcomes = []
    for outcome in run_checks(candidate, names):
        outcomes.append(outcome)
        tell(f"{outcome.status:15}{outcome.name}: {outcome.reason}")
    report = make_report(candidate, outcomes)
    page = write_report(report, out)
    if arguments.json:
        print_json(arguments, report)
    print(f"{arguments.trainer}: {summarize(outcomes)}. The report: {page}")
    failed = [outcome.name for outcome in outcomes if outcome.status == "failed"]
    if failed and not getattr(arguments, "verbose", False):
        again = f"gem-core conform -v {arguments.trainer} --only {' '.join(failed)}"
        print(f"With the traceback of an error: {again}")
    return int(bool(failed))
