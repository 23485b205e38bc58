"""Known faults through ``gem-core conform``: ``python benchmarks/parity/conformed.py``.

Each fault of `faults.FAULTS` is put into a trainer's path in its own environment, and each of
`source_faults.FAULTS` into a copy of the tree; then ``gem-core conform NAME --only CHECK`` runs as
a user runs it. A fault is found if a check fails. The same checks run without a fault, too, and
must pass. It needs the Python of a trainer's environment. Writes ``conformed.json`` and the table
of ``docs/conformance.md``; exit code 1 if a fault is not found that has no reason in `BEYOND`, or
if a check fails without one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import conformed_page
from conformed_trials import Trial, in_the_path, in_the_source, work
from faults import ALL

from gem_core.runs import provenance

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "conformed.json"
BEYOND = {
    "missing rank reduction": "needs two processes, and the kit's runs have one; "
    "`benchmarks/parity/two_ranks.py` finds it",
}
"""Fault that the kit does not see -> why, and what finds it."""


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainers", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--kind", choices=("path", "source"), help="faults of one kind only")
    parser.add_argument("--faults", nargs="+", metavar="NAME", help="these only")
    parser.add_argument("--page", action="store_true", help="write the table, and run nothing")
    parser.add_argument("--worker", nargs=3, metavar=("TRAINER", "NAMES", "OUT"))
    provenance.add_option(parser)
    arguments = parser.parse_args()
    if arguments.worker:
        work(*arguments.worker)
        return 0
    if arguments.page:
        conformed_page.write(known_trials(), BEYOND)
        return 0
    provenance.check_option(parser, arguments)
    wrong = 0
    for trial in trials(arguments):
        sound = trial.status == "passed" if not trial.fault else trial.found
        wrong += not sound and trial.fault not in BEYOND
        print(f"{'' if sound else 'WRONG '}{trial.line()}", flush=True)
        keep(trial)
    return int(wrong > 0)


def trials(arguments: argparse.Namespace) -> Iterator[Trial]:
    """Run what was asked for, and yield each trial as it ends."""
    for trainer in arguments.trainers:
        if arguments.kind != "source":
            yield from in_the_path(trainer, arguments.faults)
    for trainer in arguments.trainers:
        if arguments.kind != "path":
            yield from in_the_source(trainer, arguments.faults)


# -- results --------------------------------------------------------------------------------------


def known_trials() -> dict[str, dict[str, Any]]:
    """Return the trials that were kept, by fault, trainer, check and case."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def keep(trial: Trial) -> None:
    """Put a trial in the place of the one before, and write the table from all.

    A fault has one trial in a trainer, also where another case was tried before.
    """
    known = {
        key: row
        for key, row in known_trials().items()
        if not trial.fault or (row["fault"], row["trainer"]) != (trial.fault, trial.trainer)
    }
    key = " / ".join((trial.fault or "no fault", trial.trainer, trial.check, trial.case))
    known[key] = {**asdict(trial), "reason": trial.reason[:400]}
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    conformed_page.write(known, BEYOND)


if __name__ == "__main__":
    sys.exit(main())
