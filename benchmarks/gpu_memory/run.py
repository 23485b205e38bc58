"""Measure the live tensors of each trainer's update without a GPU, and compare ``plan`` with them.

    python benchmarks/gpu_memory/run.py               # all cases: minutes of a core for each
    python benchmarks/gpu_memory/run.py --trainers trl
    python benchmarks/gpu_memory/run.py --pages       # the pages, from the committed result

Each case runs in a process of its own, in the Python of its trainer's environment (`one.py`). The
result is ``result.json``; the pages are ``README.md`` here and the tables of ``docs/gpu.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from page import write_pages

from gem_compare.runner import trainer_python
from gem_core.runs.provenance import commit

HERE = Path(__file__).resolve().parent
RESULT = HERE / "result.json"
TRAINERS = ("trl", "verl", "openrlhf", "oat", "rl2")
CASES = (("Qwen3-0.6B", 8), ("Qwen3-1.7B", 8), ("Qwen3-4B", 8), ("Qwen3-0.6B", 64))
"""Model, and number of GPUs."""
LEFT_OUT = {("rl2", 64), ("oat", 64)}
"""Trainer and number of GPUs of cases that its adapter refuses: more than one machine."""
TOKENS = 12800
"""Of the one row in a forward pass: ``limits.max_context_tokens`` of the profile ``paper``."""


def main() -> int:
    """Measure what is asked for; return 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainers", nargs="+", choices=TRAINERS, default=TRAINERS)
    parser.add_argument("--pages", action="store_true", help="measure nothing; write the pages")
    options = parser.parse_args()
    rows = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else []
    failed = False
    for trainer in () if options.pages else options.trainers:
        for model, world in CASES:
            if (trainer, world) in LEFT_OUT:
                continue
            row = measured(trainer, model, world)
            failed |= row is None
            if row is not None:
                rows = [*(old for old in rows if key(old) != key(row)), row]
                RESULT.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    write_pages(rows)
    return int(failed)


def measured(trainer: str, model: str, world: int) -> dict[str, Any] | None:
    """Run one case; return what it found, in bytes, or ``None`` where it ended with an error."""
    words = [trainer, model, str(world), str(TOKENS)]
    command = [trainer_python(trainer), str(HERE / "one.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"{' '.join(words)}: failed\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{' '.join(words)}: {found['peak'] / 1e9:.2f} GB", flush=True)
    case = {"trainer": trainer, "model": model, "gpus": world, "tokens": TOKENS}
    return {**case, **found, "commit": commit()}


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what tells one case from another."""
    return row["trainer"], row["model"], row["gpus"], row["tokens"]


if __name__ == "__main__":
    sys.exit(main())
