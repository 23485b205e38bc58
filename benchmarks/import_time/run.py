"""CPU time of import and make: gem-core and gem-llm 0.1.0, in new interpreters, alternating.

    python benchmarks/import_time/run.py --gem-python VENV/bin/python
    python benchmarks/import_time/run.py --create VENV     # first make that environment

Run it with the Python that has gem-core. The result is written to the directory of this file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from gem_core.runs import provenance

HERE = Path(__file__).parent
ENV_ID = "game:GuessTheNumber-v0-easy"
GEM = ["gem-llm==0.1.0"]
GEM_NEEDS = ["reasoning-gym", "nltk", "math-verify", "msgspec==0.19.0", "numpy", "fire", "httpx"]
CASES = {
    "bare python": "pass",
    "import": "import {module}",
    "import + make": "import {module}; {module}.make(" + repr(ENV_ID) + ")",
}


def cpu_ms(python: str, code: str) -> float:
    """Return the user and system CPU milliseconds of a new interpreter."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, "-c", code], check=True, capture_output=True, cwd=HERE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def create(directory: str) -> str:
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = str(Path(directory, "bin", "python"))
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", *GEM], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", *GEM_NEEDS], check=True)
    return python


def versions(python: str, names: list[str]) -> dict[str, str]:
    code = (
        "import json, sys; from importlib.metadata import version; "
        f"print(json.dumps({{'python': sys.version.split()[0], "
        f"**{{n: version(n) for n in {names!r}}}}}))"
    )
    out = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--gem-python", help="a Python with gem-llm 0.1.0")
    where.add_argument("--create", metavar="DIR", help="create a virtual environment with it")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=HERE / "result.json")
    provenance.add_option(parser)
    args = parser.parse_args()
    provenance.check_option(parser, args)
    commit = provenance.commit()  # of the code that runs, not of a later one
    gem_python = args.gem_python or create(args.create)

    sides = {"gem-core": (sys.executable, "gem_core"), "gem-llm": (gem_python, "gem")}
    table = summarise(measure(sides, args.repeats))
    result = report(table, args.repeats, gem_python, commit)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    for side, rows in table.items():
        print(side, {case: row["median_ms"] for case, row in rows.items()})
    above = result["import_make_above_bare_ms"]
    print(f"above bare Python: {above}; ratio {result['ratio_gem_llm_to_gem_core']}")


def measure(sides: dict[str, tuple[str, str]], repeats: int) -> dict[tuple[str, str], list[float]]:
    """Return the milliseconds of each side and case; the sides alternate."""
    samples: dict[tuple[str, str], list[float]] = {}
    for repeat in range(repeats + 1):
        for side, (python, module) in sides.items():
            for case, code in CASES.items():
                ms = cpu_ms(python, code.format(module=module))
                if repeat:  # the first round writes the bytecode
                    samples.setdefault((side, case), []).append(ms)
    return samples


def summarise(samples: dict[tuple[str, str], list[float]]) -> dict[str, dict[str, Any]]:
    """Return median, minimum and maximum of each case, by side."""
    table: dict[str, dict[str, Any]] = {}
    for (side, case), values in samples.items():
        table.setdefault(side, {})[case] = {
            "median_ms": round(statistics.median(values), 1),
            "min_ms": round(min(values), 1),
            "max_ms": round(max(values), 1),
        }
    return table


def report(
    table: dict[str, dict[str, Any]], repeats: int, gem_python: str, commit: str | None
) -> dict[str, Any]:
    """Return the result with versions and machine."""
    above = {
        side: round(rows["import + make"]["median_ms"] - rows["bare python"]["median_ms"], 1)
        for side, rows in table.items()
    }
    return {
        "what": f"CPU ms (user + system) of a fresh interpreter; make({ENV_ID!r})",
        "commit": commit,
        "repeats": repeats,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, {platform.system()}",
        "versions": {
            "gem-core": versions(sys.executable, ["gem-core"]),
            "gem-llm": versions(gem_python, ["gem-llm", "reasoning-gym", "numpy"]),
        },
        "cpu_ms": table,
        "import_make_above_bare_ms": above,
        "ratio_gem_llm_to_gem_core": round(above["gem-llm"] / above["gem-core"], 1),
    }


if __name__ == "__main__":
    main()
