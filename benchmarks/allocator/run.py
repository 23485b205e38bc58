"""Time of the training steps of a tiny recipe with freed memory kept, and with glibc's defaults.

    .venvs/trl/bin/python benchmarks/allocator/run.py

Each run trains a few steps of `RECIPE` in a process of its own; the two settings alternate. The
result is written to the directory of this file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from gem_core.runs import provenance
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.tiny import model_path

HERE = Path(__file__).resolve().parent
RECIPE = ("guess-the-number-easy", "--profile", "tiny", "--trainer", "trl")
GLIBC = {"MALLOC_MMAP_MAX_": "65536", "MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_TOP_PAD_": "0"}
"""The defaults of glibc; a variable that is set is not changed by gem-core."""


def train(steps: int, environ: dict[str, str]) -> list[float]:
    """Return the seconds of each training step except the first, which loads and allocates."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        sets = ["--set", f"train.steps={steps}", "--set", "eval.episodes=0"]
        sets += ["--run", str(path)]
        command = [sys.executable, "-m", "gem_core.cli", "train", *RECIPE, *sets]
        settings = {**os.environ, "OMP_NUM_THREADS": "1", **environ}
        subprocess.run(command, check=True, env=settings, capture_output=True)
        return [row["time/step"] for row in RunDir(path).metrics()][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    provenance.add_option(parser)
    arguments = parser.parse_args()
    provenance.check_option(parser, arguments)
    commit = provenance.commit()  # of the code that runs, not of a later one
    model_path(load_recipe(RECIPE[0], "tiny"))  # built before the first measurement
    seconds: dict[str, list[float]] = {"glibc": [], "kept": []}
    for _ in range(arguments.rounds):
        seconds["glibc"] += train(arguments.steps, GLIBC)
        seconds["kept"] += train(arguments.steps, {})
    medians = {name: round(statistics.median(steps), 3) for name, steps in seconds.items()}
    result = {
        "commit": commit,
        "seconds_per_step": medians,
        "ratio": round(medians["glibc"] / medians["kept"], 2),
        "steps": {name: len(steps) for name, steps in seconds.items()},
        "versions": {name: version(name) for name in ("torch", "trl", "transformers")},
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
    }
    text = json.dumps(result, indent=1) + "\n"
    (HERE / "result.json").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
