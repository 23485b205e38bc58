"""Train a few steps with every trainer on one GPU, and write a report that can be sent back.

    python benchmarks/gpu/run.py --model /models/Qwen3-0.6B-Base
    python benchmarks/gpu/run.py --random-model     # Qwen3-0.6B's sizes without its weights
    python benchmarks/gpu/run.py --model PATH --trainers trl verl --python trl=/envs/trl/bin/python
    python benchmarks/gpu/run.py --cpu        # the tiny model and the stand-in engines, no GPU

Each trainer runs in the Python of its own environment. One that fails is recorded with the end of
its log, and the others go on. The program itself runs with any Python that has gem-core.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from command_line import arguments
from figures import figures, page
from processes import execute, used_mib, wait_for_memory
from random_model import write_model
from watch import GpuWatch

from gem_compare.runner import trainer_python
from gem_core.errors import MissingDependencyError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.hardware import describe_machine

HERE = Path(__file__).resolve().parent
BASELINE = "guess-the-number-easy"
LOG_LINES = 200
"""Lines of a trainer's output that are kept; a failure is in the last ones."""
COMMON = ("eval.episodes=0", "train.save_every=0", "train.save_minutes=0")
GPU = (
    "hardware.gpus_per_node=1",
    "batch.episodes=32",
    "batch.micro_batch=2",
    "algorithm.epochs=1",
    "limits.max_tokens_per_turn=256",
    "limits.max_context_tokens=2048",
)
RANDOM = ("algorithm.entropy_coef=0.01", "algorithm.lr=1e-4")
"""Of a random model, whose episodes all have the same reward: without it no weight would move."""
CPU = ("batch.episodes=16", "model.tiny.warm_start_steps=20")
_MEMORY_S = 60.0
"""Seconds in which a GPU must have its memory back."""


def main() -> int:
    """Run the trainers one after another; return 0 if all of them trained."""
    options = arguments(__doc__.splitlines()[0])
    started = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    out = options.out or HERE / "results" / f"{'cpu' if options.cpu else 'gpu'}-{started}"
    out.mkdir(parents=True, exist_ok=True)
    own = {"rehearsal": options.cpu, "variables": options.variable, "started": started}
    write(out / "machine.json", {**machine(), **own, "random_model": options.random_model})
    if not options.random_model:
        return train_all(options, out)
    with tempfile.TemporaryDirectory(prefix="gem-gpu-model-") as folder:
        options.model = Path(folder)
        write_model(options.model)
        return train_all(options, out)


def train_all(options: argparse.Namespace, out: Path) -> int:
    """Run the trainers one after another and write their page; return 0 if all of them trained."""
    rows = []
    for name, setting in itertools.product(options.trainers, options.each or [""]):
        label = f"{name}-{setting.partition('=')[2]}" if setting else name
        print(f"{label}: ...", flush=True)
        row = {
            "trainer": name,
            "rehearsal": options.cpu,
            **({"setting": setting} if setting else {}),
        }
        row |= one(name, options, setting, out / f"{label}.log")
        write(out / f"{label}.json", row)
        rows.append(row)
        print(f"{label}: {row['status']} after {row['seconds']:.0f} s", flush=True)
        text = page(rows, json.loads((out / "machine.json").read_text(encoding="utf-8")))
        (out / "summary.md").write_text(text, encoding="utf-8")
    print((out / "summary.md").read_text(encoding="utf-8"))
    print(f"Send back the folder {out} (README.md says what is in it).")
    return int(any(row["status"] != "trained" for row in rows))


def machine() -> dict[str, Any]:
    """Return hardware and commit, without paths of this machine."""
    found = describe_machine()
    kept = ("platform", "processor", "cores", "gpus", "commit")
    return {key: found[key] for key in kept}


def one(name: str, options: argparse.Namespace, setting: str, log: Path) -> dict[str, Any]:
    """Check and train one trainer with a value of ``--each``; return what is to be recorded of it.

    ``log`` gets the end of its output. The key ``status`` is ``trained``, ``failed``, ``late``,
    ``not ready`` or ``no environment``.
    """
    start = time.monotonic()
    try:
        python = interpreter(name, options.python)
    except MissingDependencyError as error:
        return {"status": "no environment", "seconds": 0.0, "log": str(error).splitlines()}
    with tempfile.TemporaryDirectory(prefix="gem-gpu-") as folder:
        run = Path(folder) / "run"
        asked = ["--profile", "tiny" if options.cpu else "small"]
        for override in overrides(options):
            asked += ["--set", override]
        environment = surroundings(options, setting)
        gpu = environment["CUDA_VISIBLE_DEVICES"]
        doctor = diagnosis(python, name, asked, run, options.cpu, environment)
        data: dict[str, Any] = {"doctor": doctor}
        if not doctor.get("ready") and not options.anyway:
            told = doctor.get("log", [])
            return {**data, "status": "not ready", "seconds": time.monotonic() - start, "log": told}
        command = [python, "-m", "gem_core.cli", "train", BASELINE, "--trainer", name, *asked]
        before = None if options.cpu else used_mib(gpu)
        limits = (options.start_minutes * 60, options.minutes * 60)
        with GpuWatch(gpu, enabled=not options.cpu) as watch:
            ended = execute([*command, "--run", str(run)], log, run, limits, environment)
        seconds = time.monotonic() - start
        shorten(log, run)
        data |= {"seconds": seconds, "gpu": watch.data(), **ended}
        data["memory"] = wait_for_memory(gpu, before, _MEMORY_S)
        if ended["exit"] != 0 or not RunDir(run).finished:
            status = "late" if ended["exit"] is None else "failed"
            return {**data, "status": status, "log": last_lines(log)}
        return {**data, "status": "trained", **figures(RunDir(run))}


def interpreter(name: str, chosen: Sequence[str]) -> str:
    """Return the Python of a trainer's environment.

    Raises:
        MissingDependencyError: there is none.
    """
    for text in chosen:
        if text.partition("=")[0] == name:
            return text.partition("=")[2]
    return trainer_python(name)


def overrides(options: argparse.Namespace) -> list[str]:
    """Return the recipe's keys that differ from the profile."""
    random = RANDOM * options.random_model
    own = CPU if options.cpu else (*GPU, *random, f"model.path={options.model.resolve()}")
    return [*COMMON, *own, f"train.steps={options.steps}"]


def surroundings(options: argparse.Namespace, setting: str) -> dict[str, str]:
    """Return the environment variables of every trainer: it sees one GPU, or none with ``--cpu``.

    The number is that of ``nvidia-smi``, which orders GPUs by their place in the machine.
    """
    mine = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    seen = "" if options.cpu else options.gpu or mine or "0"
    own = {"CUDA_VISIBLE_DEVICES": seen, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "HF_HUB_OFFLINE": "1"}
    given = dict(text.split("=", 1) for text in [*options.variable, setting] if text)
    return {**os.environ, **own, **given}


def diagnosis(
    python: str,
    name: str,
    asked: Sequence[str],
    run: Path,
    cpu: bool,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Return what ``gem-core doctor`` of that environment says of this very run."""
    command = [python, "-m", "gem_core.cli", "doctor", "--json", "--trainer", name, "--recipe"]
    command += [BASELINE, *asked, "--device", "cpu" if cpu else "gpu", "--run", str(run)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"ready": False, "log": [f"{type(error).__name__}: {error}"]}
    try:
        said: dict[str, Any] = json.loads(done.stdout)
        (verdict,) = said["trainers"]
    except ValueError:
        told = (done.stdout + done.stderr).splitlines()[-LOG_LINES:]
        return {"ready": False, "log": [*told, f"the doctor ended with {done.returncode}"]}
    log = [f"{problem['text']}  {problem['fix']}" for problem in verdict["problems"]]
    return {**verdict, "python": said["python"], "log": log}


def shorten(log: Path, run: Path) -> None:
    """Keep the end of a trainer's output, and of the log that its own program wrote."""
    parts = [log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]]
    for path in sorted(run.glob("*.log")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        parts.append([f"--- {path.name}", *lines[-LOG_LINES:]])
    text = "\n".join(line for part in parts for line in part) + "\n"
    log.write_text(text, encoding="utf-8")


def last_lines(log: Path) -> list[str]:
    """Return the last forty lines of a log."""
    return log.read_text(encoding="utf-8").splitlines()[-40:]


def write(path: Path, data: Any) -> None:
    """Write JSON."""
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
