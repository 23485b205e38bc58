"""Measure the peak memory of training steps on a CPU, and compare it with the plan's.

    .venvs/trl/bin/python benchmarks/memory/run.py

Each figure of each case comes from a process of its own (`steps.measure`). The result and the page
are written to the directory of this file; with names of cases, these are measured and printed only.
"""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import steps
from cases import SIZES, Case, chosen
from page import page
from prediction import cpu_peak, cross_entropy

from gem_core.runs import provenance
from gem_core.training.allocator import keep_freed_memory

HERE = Path(__file__).resolve().parent
FIGURES = {
    "tensors": (steps.tensors, steps.default),
    "mapped": (steps.resident, steps.mapped),
    "glibc": (steps.resident, steps.default),
    "kept": (steps.resident, keep_freed_memory),
}
"""Name: what is measured, and the settings of glibc for it."""


def measure(case: Case) -> dict[str, Any]:
    """Run one case for each figure and return them beside what is predicted."""
    shape = SIZES[case.size]
    one = cross_entropy(case.rows * case.length, case.precision, case.checkpointing)
    predicted, moment = cpu_peak(shape, one, case.passes > 1)
    measured = {name: steps.measure(case, *figure) for name, figure in FIGURES.items()}
    return {
        "case": case.name,
        **asdict(case),
        "batch": case.batch,
        "held_out": case.held_out,
        "predicted_bytes": predicted,
        "moment": moment.name,
        "measured_bytes": measured,
        "ratio": {name: round(predicted / size, 4) for name, size in measured.items()},
    }


def _origin() -> dict[str, Any]:
    return {
        "commit": provenance.commit(),
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "platform": platform.platform(),
        "sizes": {name: {**asdict(s), "parameters": s.parameters} for name, s in SIZES.items()},
    }


def main() -> None:
    """Measure the cases that are named, or all of them and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", help="names of cases; without: all, and write")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    file = HERE / "result.json"
    if not arguments.page:
        provenance.check_option(parser, arguments)
        result = _origin() | {"cases": []}
        steps.warm()
        for case in chosen(arguments.cases):
            result["cases"].append(measure(case))
            print(case.name, json.dumps(result["cases"][-1]["ratio"]), flush=True)
        if arguments.cases:
            return
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    text = page(json.loads(file.read_text(encoding="utf-8")))
    (HERE / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
