"""Measure that the trainers agree, and write the table: ``python benchmarks/parity/run.py``.

Each trainer replays the committed episodes and the recorded runs in its own environment (``make
env-<trainer>``). Exit code 1 if any figure is out of bounds, a trainer could not be measured or
refused what ``refusals.json`` does not list. With ``--trainers`` only those are measured, and their
figures printed; the committed results and the table are of one run of all trainers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tables import gradient_table, page, run_table

from gem_compare.runner import trainer_python
from gem_core.runs.trainers import list_trainers

HERE = Path(__file__).parent
RESULTS = HERE / "results"
TABLE = HERE / "README.md"
QUIET = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
MODEL = """
import sys
from gem_parity.small_model import write_model
write_model(sys.argv[1], vocab=1024)
"""


def main() -> int:
    """Measure, write the results, write the table, print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    everyone = sorted(list_trainers())
    parser.add_argument("--trainers", nargs="+", default=everyone)
    parser.add_argument("--steps", type=int, help="steps of every recorded run; writes no table")
    parser.add_argument("--jobs", type=int, default=1, help="trainers that are measured at once")
    parser.add_argument("--table-only", action="store_true", help="only rewrite the table")
    args = parser.parse_args()
    if args.table_only:
        results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
        failed = not_of_one_run(results, everyone)
    else:
        results, failed = measure_all(args.trainers, args.steps, args.jobs)
    print(run_table(results), gradient_table(results), sep="\n\n")
    bad = failed + faults(results)
    for line in bad:
        print("NOT EQUAL", line, file=sys.stderr)
    if not failed and args.steps is None and sorted(args.trainers) == everyone:
        keep(results, rewrite=not args.table_only)
    return 1 if bad else 0


def measure_all(
    trainers: list[str], steps: int | None, jobs: int = 1
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run one worker per trainer, ``jobs`` at a time; return the results and the failures."""
    results: list[dict[str, Any]] = []
    failed: list[str] = []
    stamp = {"at": datetime.now(timezone.utc).isoformat(timespec="seconds"), "commit": commit()}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        env = {**os.environ, **QUIET}
        model = Path(folder) / "model"
        making = [trainer_python(trainers[0]), "-c", MODEL, str(model)]
        subprocess.run(making, env=env, check=True, capture_output=True)

        def work(trainer: str) -> subprocess.CompletedProcess[str]:
            worker = [trainer_python(trainer), str(HERE / "worker.py"), trainer, str(model)]
            worker += [f"{folder}/{trainer}.json", *(["--steps", str(steps)] if steps else [])]
            return subprocess.run(worker, env=env, capture_output=True, text=True)

        for trainer, done in zip(trainers, pool.map(work, trainers), strict=True):
            if done.returncode:
                print(done.stdout + done.stderr, file=sys.stderr)
                failed.append(f"{trainer}: the worker ended with {done.returncode}")
            else:
                measured = json.loads((Path(folder) / f"{trainer}.json").read_text())
                results.append({"run": stamp, **measured})
    return results, failed


def commit() -> str:
    """Return the commit that was measured, with "+" where the tree differs from it."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--abbrev=40", "--dirty=+"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def not_of_one_run(results: list[dict[str, Any]], trainers: list[str]) -> list[str]:
    """Return why results cannot fill one table; empty if they are all of one run."""
    names = sorted(result["trainer"] for result in results)
    stamps = {json.dumps(result.get("run")) for result in results}
    problems = [] if names == trainers else [f"results of {names}, not of {trainers}"]
    if len(stamps) > 1:
        problems.append(f"results of {len(stamps)} runs: measure all trainers again")
    return problems


def keep(results: list[dict[str, Any]], *, rewrite: bool) -> None:
    """Write the results of a whole run in the place of all others, and the table."""
    if rewrite:
        RESULTS.mkdir(exist_ok=True)
        for old in RESULTS.glob("*.json"):
            old.unlink()
        for result in results:
            text = json.dumps(result, indent=1) + "\n"
            (RESULTS / f"{result['trainer']}.json").write_text(text, encoding="utf-8")
    TABLE.write_text(page(results), encoding="utf-8")


def faults(results: list[dict[str, Any]]) -> list[str]:
    """Return every figure that is out of bounds, and every case that another trainer has alone."""
    found = []
    for kind in ("cases", "runs"):
        everything = sorted({case for result in results for case in result[kind]})
        for result in results:
            for case in everything:
                figures = result[kind].get(case)
                if figures is None:
                    found.append(f"{result['trainer']}, {case}: not measured")
                    continue
                found += [f"{result['trainer']}, {case}: {f}" for f in figures.get("faults", [])]
    return found


if __name__ == "__main__":
    sys.exit(main())
