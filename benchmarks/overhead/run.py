"""Step time of each adapter, compared with its trainer's own single-turn loop.

    .venvs/trl/bin/python benchmarks/overhead/run.py               # all trainers, then the page
    .venvs/trl/bin/python benchmarks/overhead/run.py --table-only  # from the committed results

Both sides train the same tiny model on the same prompts with the same engine, settings and tokens
per step; ``own_<trainer>.py`` is the released trainer's own entry point, data set, reward function
and GRPO. The runs of the two sides alternate, so that noise of the machine affects both.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from shared import BASELINE, FOLDER, OVERRIDES, PROFILE, experiment, prepare

from gem_compare.processes import end_session
from gem_compare.runner import trainer_python
from gem_core.results import markdown_table
from gem_core.runs import provenance
from gem_core.runs.directory.run_dir import RunDir

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE / "README.md"
TRAINERS = ("trl", "openrlhf", "verl", "oat", "rl2")
TIMED = ("trl", "oat")
"""Trainers whose steps are timed by one stopwatch on both sides; the others log their own times."""
SETTINGS = {
    # Otherwise Ray starts an idle worker per declared CPU, which takes half a minute in each run.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    # Otherwise OpenMP spins or not depending on other threads of the process: a factor of 3.
    "OMP_WAIT_POLICY": "passive",
}
"""Environment variables of both sides."""
WARM_UP = 2
SIDES = ("own", "adapter")
SAME_TOKENS = 0.03
Step = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trainers", nargs="+", default=TRAINERS, help="(%(default)s)")
    parser.add_argument(
        "--steps", type=int, default=40, help="steps of each run (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=2, help="runs of each side (%(default)s)")
    parser.add_argument("--budget", type=float, default=200, help="seconds a run may take")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the current run is ended
    if not arguments.table_only:
        provenance.check_option(parser, arguments)
        for trainer in arguments.trainers:
            measured = measure(trainer, arguments.steps, arguments.rounds, arguments.budget)
            arguments.results.mkdir(parents=True, exist_ok=True)
            text = json.dumps(measured, indent=1) + "\n"
            (arguments.results / f"{trainer}.json").write_text(text, encoding="utf-8")
    files = [arguments.results / f"{trainer}.json" for trainer in TRAINERS]
    results = [json.loads(path.read_text(encoding="utf-8")) for path in files if path.exists()]
    text = page(results)
    if arguments.results == RESULTS:
        PAGE.write_text(text, encoding="utf-8")
    print(text)
    return int(any("failed" in result for result in results))


# -- measuring ----------------------------------------------------------------------------------


def measure(trainer: str, steps: int, rounds: int, budget: float) -> dict[str, Any]:
    """Run both sides of a trainer ``rounds`` times; return their steps, or why one failed."""
    runs: dict[str, list[list[Step]]] = {side: [] for side in SIDES}
    info: dict[str, Any] = {"trainer": trainer, "steps": steps}
    for number in range(1, rounds + 1):
        for side in SIDES:
            print(f"==> {trainer}, round {number}: {side}", flush=True)
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as path:
                work = Path(path) / side
                try:
                    rows = run_side(trainer, side, work, steps, budget)
                except RuntimeError as reason:
                    return {**info, "failed": f"{side}: {reason}"}
                runs[side].append(rows)
                if side == "adapter":
                    info |= about(RunDir(work / "run"))
    return {**info, "n": len(kept(runs["own"])), **runs}


def run_side(trainer: str, side: str, work: Path, steps: int, budget: float) -> list[Step]:
    """Train one side in ``work`` and return its steps.

    Raises:
        RuntimeError: the process failed, or took longer than ``budget`` seconds.
    """
    prepare(work, experiment(steps))
    own = side == "own"
    code = execute(command(trainer, own, work, steps), work, budget)
    if code != 0:
        print(f"its output is in {keep_logs(work, trainer, side)}", flush=True)
        raise RuntimeError(f"exit code {code}" if code else f"more than {budget:g} s")
    if own or trainer in TIMED:
        lines = (work / "steps.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]
    return [logged(row) for row in RunDir(work / "run").metrics()]


def command(trainer: str, own: bool, work: Path, steps: int) -> list[str]:
    """Return the command of one side: the stock loop, or ``gem-core train``."""
    python = trainer_python(trainer)
    script = str(HERE / f"own_{trainer}.py")
    if own:
        return [python, script]
    train = ["train", BASELINE, "--profile", PROFILE, "--trainer", trainer]
    train += ["--run", str(work / "run")]
    for override in (*OVERRIDES, f"train.steps={steps}"):
        train += ["--set", override]
    start = [script, "--adapter"] if trainer in TIMED else ["-m", "gem_core.cli"]
    return [python, *start, *train]


def execute(arguments: Sequence[str], work: Path, budget: float) -> int | None:
    """Run a process and end all that it started; return its exit code, ``None`` at the limit."""
    environment = {**os.environ, **SETTINGS, FOLDER: str(work), "PYTHONPATH": str(HERE)}
    with (work / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            arguments,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(budget)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end_session(process.pid)
            process.wait()


def keep_logs(work: Path, trainer: str, side: str) -> Path:
    """Copy the output of a failed run to a file; return the file."""
    target = Path(tempfile.gettempdir()) / f"overhead-{trainer}-{side}.log"
    with target.open("wb") as file:
        for path in (work / "log.txt", *sorted(work.glob("run/*.log"))):
            file.write(path.read_bytes())
    return target


def logged(row: dict[str, float]) -> Step:
    """Return a step of the adapter's ``metrics.jsonl``."""
    return {
        "time": row["time"],
        "rollout": row["time/rollout"],
        "update": row["time/update"],
        "tokens": row["tokens/all"] * row["episodes"],
    }


def about(run: RunDir) -> dict[str, Any]:
    """Return versions, hardware and commit of a run."""
    keys = ("versions", "python", "platform", "processor", "cores", "commit")
    return {key: run.info[key] for key in keys}


# -- the page -----------------------------------------------------------------------------------


def kept(runs: Sequence[Sequence[Step]]) -> list[Step]:
    """Return the steps of ``runs`` that count, with their wall ``seconds`` and ``rest``.

    A step lasts from the previous log line to its own. The first steps are a warm-up; the last one
    includes saving.
    """
    steps = []
    for rows in runs:
        for before, row in list(pairwise(rows))[WARM_UP - 1 : -1]:
            seconds = row["time"] - before["time"]
            rest = seconds - row["rollout"] - row["update"]
            steps.append({**row, "seconds": seconds, "rest": rest})
    return steps


def middle(runs: Sequence[Sequence[Step]], key: str) -> float:
    return median(step[key] for step in kept(runs))


def overhead(own: Sequence[Sequence[Step]], adapter: Sequence[Sequence[Step]]) -> float:
    """Return what the adapter adds to the rest of a step, as a share of the stock loop's step."""
    return (middle(adapter, "rest") - middle(own, "rest")) / middle(own, "seconds")


def page(results: Sequence[dict[str, Any]]) -> str:
    head = (
        "trainer",
        "tokens per step",
        "step s",
        "generation s",
        "update s",
        "rest s",
        "added ms",
        "overhead",
        "of each round",
        "step ratio",
        "of each round",
    )
    rows = [row(result) for result in results]
    return (
        "# What an adapter costs per step\n\n"
        "Generated by `python benchmarks/overhead/run.py`; do not edit.\n\n"
        f"{ABOUT}\n{markdown_table(head, rows)}\n{made_with(results)}"
    )


ABOUT = f"""\
One training step of `gem-core train`, compared with one of the released trainer's own single-turn
loop (`own_<trainer>.py`: its entry point, data set, reward function and GRPO). A cell is own /
adapter, the medians over all rounds without the first {WARM_UP} steps and the last one. Both
train the tiny model on the prompt of guess-the-number with one turn, groups of 8, one epoch, with
the same engine on a CPU. A step is the wall time from one log line to the next. Overhead is what
the adapter adds to the rest of a step (all but generation and update), as a share of the
trainer's own step; the step ratio compares whole steps, in which nothing is left out. The steps
of this model are short: the milliseconds that an adapter adds grow with the number of episodes,
not with the size of the model.

TRL and Oat are timed by one stopwatch around the same methods of the trainer on both sides. Their
generation is the engine alone, so that playing and scoring episodes counts as rest. verl,
OpenRLHF and RL2 log their own times, in which generation includes the environment or the reward
function.

Two things differ from the released trainers on their side. verl polls for finished rows every 0.1
s, as with the adapter, because its own 2 s are longer than these steps. RL2 computes in float32,
by the adapter's patch, because bfloat16 is fixed in its code.
"""


def row(result: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a trainer."""
    if "failed" in result:
        return (result["trainer"], f"not measured: {result['failed']}", *[""] * 9)
    own, adapter = result["own"], result["adapter"]
    parts = [pair(middle(own, k), middle(adapter, k), 3) for k in ("seconds", "rollout", "update")]
    rounds = [([a], [b]) for a, b in zip(own, adapter, strict=True)]
    return (
        result["trainer"],
        tokens(middle(own, "tokens"), middle(adapter, "tokens")),
        *parts,
        pair(middle(own, "rest"), middle(adapter, "rest"), 3),
        f"{1000 * (middle(adapter, 'rest') - middle(own, 'rest')):+.0f}",
        f"{overhead(own, adapter):+.1%}",
        ", ".join(f"{overhead(*sides):+.1%}" for sides in rounds),
        f"{ratio(own, adapter):.3f}",
        ", ".join(f"{ratio(*sides):.3f}" for sides in rounds),
    )


def pair(own: float, adapter: float, digits: int) -> str:
    return f"{own:.{digits}f} / {adapter:.{digits}f}"


def tokens(own: float, adapter: float) -> str:
    """Return the tokens per step of both sides, marked if they are not comparable."""
    same = abs(adapter / own - 1) <= SAME_TOKENS
    return pair(own, adapter, 0) + ("" if same else f" (DIFFER by {adapter / own - 1:+.0%})")


def ratio(own: Sequence[Sequence[Step]], adapter: Sequence[Sequence[Step]]) -> float:
    return middle(adapter, "seconds") / middle(own, "seconds")


def made_with(results: Sequence[dict[str, Any]]) -> str:
    """Return the machine, versions and commits of the results."""
    done = [result for result in results if "failed" not in result]
    if not done:
        return ""
    versions = ", ".join(f"{r['trainer']} {release(r)} (n = {r['n']})" for r in done)
    commits = sorted({f"`{provenance.short(result['commit'])}`" for result in done})
    return (
        f"{done[0]['processor']}, {done[0]['cores']} cores; {versions}, where n is the number of "
        f"steps of each side; commit {', '.join(commits)} (`+`: with uncommitted changes).\n"
    )


def release(result: dict[str, Any]) -> str:
    """Return the version of the trainer's package."""
    package = {"oat": "oat-llm", "rl2": "rl-square"}.get(result["trainer"], result["trainer"])
    return str(result["versions"].get(package, ""))


if __name__ == "__main__":
    sys.exit(main())
