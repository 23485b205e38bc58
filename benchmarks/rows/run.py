"""A row per turn against one row per episode: memory and time of a training step in each trainer.

    .venvs/trl/bin/python benchmarks/rows/run.py                 # run what is missing
    .venvs/trl/bin/python benchmarks/rows/run.py --trainers oat  # in one trainer
    .venvs/trl/bin/python benchmarks/rows/run.py --table-only    # from the committed results

One recipe is trained by ``gem-core train`` with each history of `HISTORIES`. The conditions of a
trainer alternate in one run, so that a busy machine affects all of them. Memory is the PSS of the
run's processes together (`tree.Memory`); time and tokens are those of its ``metrics.jsonl``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from page import write_page
from tree import Memory

from gem_compare.processes import end_session
from gem_compare.runner import trainer_python
from gem_core.runs import provenance
from gem_core.runs.directory.run_dir import RunDir

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
TRAINERS = ("trl", "openrlhf", "verl", "oat", "rl2")
BASELINE = "tower-of-hanoi-easy"
PROFILE = "tiny"
HISTORIES = ("append", "last", "concat")
MICRO_BATCHES = (None, 8)
"""Rows of one forward pass; ``None`` is a whole batch, the profile's setting."""
OVERRIDES = (
    "eval.episodes=0",
    "batch.episodes=32",
    "algorithm.epochs=1",
    "algorithm.lr=1e-12",  # the policy, and so the length of its episodes, stays as it was
    "train.log_episodes=0",
)
WARM_UP = 2
"""First steps that do not count; the last one includes saving and does not count, either."""
LIMIT_S = 900.0


def main() -> int:
    """Run what is missing, unless only the page is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trainers", nargs="+", choices=TRAINERS, default=TRAINERS)
    parser.add_argument("--rounds", type=int, default=2, help="runs of a condition (%(default)s)")
    parser.add_argument("--steps", type=int, default=8, help="training steps (%(default)s)")
    parser.add_argument("--record", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the current run is ended
    if not arguments.table_only:
        provenance.check_option(parser, arguments)
        arguments.record.mkdir(parents=True, exist_ok=True)
        for trainer in arguments.trainers:
            target = arguments.record / f"{trainer}.json"
            if not target.exists():
                measured = measure(trainer, arguments.rounds, arguments.steps)
                target.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    write_page(arguments.record, TRAINERS, WARM_UP)
    return 0


def measure(trainer: str, rounds: int, steps: int) -> dict[str, Any]:
    """Run every condition of a trainer ``rounds`` times, alternately, and return all figures.

    Raises:
        RuntimeError: a run failed.
    """
    found: dict[str, Any] = {
        "trainer": trainer,
        "baseline": BASELINE,
        "profile": PROFILE,
        "overrides": list(OVERRIDES),
        "steps": steps,
        "commit": provenance.commit(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
    }
    conditions = [
        {"history": history, "micro_batch": rows}
        for rows, history in product(MICRO_BATCHES, HISTORIES)
    ]
    runs: list[list[dict[str, Any]]] = [[] for _ in conditions]
    for number in range(1, rounds + 1):
        for place, condition in enumerate(conditions):
            print(f"==> {trainer}, round {number}: {condition}", flush=True)
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as path:
                run = RunDir(Path(path) / "run")
                memory = train(trainer, condition, steps, run)
                counted = "episodes" if condition["history"] == "append" else "turns/total"
                runs[place].append(figures(run, memory, counted))
                found["versions"] = run.info["versions"]
    rows = [c | {"runs": r} for c, r in zip(conditions, runs, strict=True)]
    return found | {"conditions": rows}


def train(trainer: str, condition: dict[str, Any], steps: int, run: RunDir) -> Memory:
    """Train one condition to its end, and return the memory that its processes had.

    Raises:
        RuntimeError: it failed, or took longer than `LIMIT_S`.
    """
    overrides = [*OVERRIDES, f"train.steps={steps}", f"context.history={condition['history']}"]
    if condition["micro_batch"]:
        overrides.append(f"batch.micro_batch={condition['micro_batch']}")
    command = [trainer_python(trainer), "-m", "gem_core.cli", "train", BASELINE]
    command += ["--profile", PROFILE, "--trainer", trainer, "--run", str(run.path)]
    for override in overrides:
        command += ["--set", override]
    log = run.path.with_name("log.txt")
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        memory = Memory(process.pid)
        try:
            memory.follow(process, LIMIT_S)
        finally:
            end_session(process.pid)
            process.wait()
    if process.returncode != 0:
        said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise RuntimeError(f"{trainer} {condition} ended with {process.returncode}:\n{said}")
    return memory


def figures(run: RunDir, memory: Memory, counted: str) -> dict[str, Any]:
    """Return the medians of the steps that count, and the memory while they ran.

    Args:
        run: the finished run.
        memory: that of its processes.
        counted: the metric of which each is a row of the training batch.

    Raises:
        RuntimeError: it has too few steps.
    """
    rows = list(run.metrics())
    kept = rows[WARM_UP:-1]
    if len(kept) < 3:
        raise RuntimeError(f"{run.path} has {len(rows)} steps, which leaves too few to measure.")
    least, most = memory.between(rows[WARM_UP - 1]["time"], kept[-1]["time"])
    return {
        "rows": median(row[counted] for row in kept),
        "tokens": median(row["tokens/all"] * row["episodes"] for row in kept),
        "sampled": median(row["tokens/action"] * row["episodes"] for row in kept),
        "rollout_s": median(row["time/rollout"] for row in kept),
        "update_s": median(row["time/update"] for row in kept),
        "step_s": median(row["time/step"] for row in kept),
        "least_bytes": least,
        "peak_bytes": most,
        "counted_steps": len(kept),
    }


if __name__ == "__main__":
    sys.exit(main())
