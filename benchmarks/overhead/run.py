"""Step time of each adapter against its trainer's own single-turn loop.

    .venvs/trl/bin/python benchmarks/overhead/run.py               # all trainers, then the page
    .venvs/trl/bin/python benchmarks/overhead/run.py --table-only  # from the committed results

Both sides train the same tiny model on the same prompts with the same engine, settings and tokens
per step; ``own_<trainer>.py`` is the released trainer's own entry point, data set, reward function
and GRPO. The runs of the two sides take turns, so that noise of the machine meets both.
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

from gem_core.compare.runner import end_session, trainer_python
from gem_core.report import markdown_table
from gem_core.training.runs import RunDir

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "results", HERE / "README.md"
TRAINERS = ("trl", "openrlhf", "verl", "oat", "rl2")
TIMED = ("trl", "oat")
"""Trainers whose steps one stopwatch times on both sides; the others log times of their own."""
SETTINGS = {
    # Ray would start an idle worker per made-up CPU: half a minute of each run.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    # Else OpenMP decides by a process's other threads whether it waits spinning: a factor of 3.
    "OMP_WAIT_POLICY": "passive",
}
"""Environment of both sides."""
WARM_UP = 2
SIDES = ("own", "adapter")
SAME_TOKENS = 0.03
Step = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trainers", nargs="+", default=TRAINERS, help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=40, help="of each run (%(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each side (%(default)s)")
    parser.add_argument("--budget", type=float, default=200, help="seconds a run may take")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the run under way is ended
    if not arguments.table_only:
        for trainer in arguments.trainers:
            found = measure(trainer, arguments.steps, arguments.rounds, arguments.budget)
            arguments.results.mkdir(parents=True, exist_ok=True)
            text = json.dumps(found, indent=1) + "\n"
            (arguments.results / f"{trainer}.json").write_text(text, encoding="utf-8")
    files = [arguments.results / f"{trainer}.json" for trainer in TRAINERS]
    results = [json.loads(path.read_text(encoding="utf-8")) for path in files if path.exists()]
    text = page(results)
    if arguments.results == RESULTS:
        PAGE.write_text(text, encoding="utf-8")
    print(text)
    return int(any("failed" in found for found in results))


# -- measuring ----------------------------------------------------------------------------------


def measure(trainer: str, steps: int, rounds: int, budget: float) -> dict[str, Any]:
    """Both sides of a trainer, ``rounds`` times in turn; a side that failed is a reason."""
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
    """Train one side in ``work``; returns its steps. Raises RuntimeError if it failed."""
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
    """The command of one side: the stock loop, or ``gem-core train``."""
    python, script = trainer_python(trainer), str(HERE / f"own_{trainer}.py")
    if own:
        return [python, script]
    train = ["train", BASELINE, "--profile", PROFILE, "--trainer", trainer]
    train += ["--run", str(work / "run")]
    for override in (*OVERRIDES, f"train.steps={steps}"):
        train += ["--set", override]
    start = [script, "--adapter"] if trainer in TIMED else ["-m", "gem_core.cli"]
    return [python, *start, *train]


def execute(arguments: Sequence[str], work: Path, budget: float) -> int | None:
    """Exit code of a process and all it started, None if it took too long."""
    environment = {**os.environ, **SETTINGS, FOLDER: str(work), "PYTHONPATH": str(HERE)}
    with (work / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            arguments, env=environment, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(budget)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end_session(process.pid)
            process.wait()


def keep_logs(work: Path, trainer: str, side: str) -> Path:
    """Keep a failed run's output; returns where."""
    target = Path(tempfile.gettempdir()) / f"overhead-{trainer}-{side}.log"
    with target.open("wb") as file:
        for path in (work / "log.txt", *sorted(work.glob("run/*.log"))):
            file.write(path.read_bytes())
    return target


def logged(row: dict[str, float]) -> Step:
    """A step of the adapter's ``metrics.jsonl``."""
    return {
        "time": row["time"],
        "rollout": row["time/rollout"],
        "update": row["time/update"],
        "tokens": row["tokens/all"] * row["episodes"],
    }


def about(run: RunDir) -> dict[str, Any]:
    """Versions, hardware and commit of a run."""
    keys = ("versions", "python", "platform", "processor", "cores", "commit")
    return {key: run.info[key] for key in keys}


# -- the page -----------------------------------------------------------------------------------


def kept(runs: Sequence[Sequence[Step]]) -> list[Step]:
    """The steps of ``runs`` that count, each with its wall ``seconds`` and the ``rest`` of them.

    A step lasts from the log line before to its own. The first steps warm up, the last one saves.
    """
    found = []
    for rows in runs:
        for before, row in list(pairwise(rows))[WARM_UP - 1 : -1]:
            seconds = row["time"] - before["time"]
            rest = seconds - row["rollout"] - row["update"]
            found.append({**row, "seconds": seconds, "rest": rest})
    return found


def middle(runs: Sequence[Sequence[Step]], key: str) -> float:
    return median(step[key] for step in kept(runs))


def overhead(own: Sequence[Sequence[Step]], adapter: Sequence[Sequence[Step]]) -> float:
    """What the adapter adds to the rest of a step, as a share of the stock loop's step."""
    return (middle(adapter, "rest") - middle(own, "rest")) / middle(own, "seconds")


def page(results: Sequence[dict[str, Any]]) -> str:
    head = (
        "trainer", "tokens per step", "step s", "generation s", "update s", "rest s",
        "added ms", "overhead", "of each round", "step ratio", "of each round",
    )  # fmt: skip
    rows = [row(found) for found in results]
    return (
        "# What an adapter costs per step\n\n"
        "Generated by `python benchmarks/overhead/run.py`; do not edit.\n\n"
        f"{ABOUT}\n{markdown_table(head, rows)}\n{made_with(results)}"
    )


ABOUT = f"""\
One training step of `gem-core train` against one of the released trainer's own single-turn loop
(`own_<trainer>.py`: its entry point, data set, reward function and GRPO). A cell is own / adapter,
medians over all rounds without the first {WARM_UP} steps and the last. Both train the tiny model on
the prompt of guess-the-number with one turn, groups of 8, one epoch, with the same engine on a CPU.
A step is all wall time from one log line to the next. Overhead is what the adapter adds to the rest
of a step (all but generation and update) as a share of the trainer's own step; the step ratio
compares whole steps, so that nothing can hide in a part. The steps of this model are short: the
milliseconds that an adapter adds grow with the number of episodes, not with the size of the model.

TRL and Oat are timed by one stopwatch around the same stock methods on both sides, and their
generation is the engine alone, so that playing and scoring episodes counts as rest. verl, OpenRLHF
and RL2 log times of their own, in which generation includes the environment or the reward function.

Two things are not stock on the trainers' side. verl looks for finished rows every 0.1 s, as with
the adapter: its own 2 s are longer than these steps. RL2 computes in float32, by the adapter's
repair: the release has bfloat16 in its code.
"""


def row(found: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a trainer."""
    if "failed" in found:
        return (found["trainer"], f"not measured: {found['failed']}", *[""] * 9)
    own, adapter = found["own"], found["adapter"]
    parts = [pair(middle(own, k), middle(adapter, k), 3) for k in ("seconds", "rollout", "update")]
    rounds = [([a], [b]) for a, b in zip(own, adapter, strict=True)]
    return (
        found["trainer"],
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
    """Tokens per step of both sides, with a word where they are not comparable."""
    same = abs(adapter / own - 1) <= SAME_TOKENS
    return pair(own, adapter, 0) + ("" if same else f" (DIFFER by {adapter / own - 1:+.0%})")


def ratio(own: Sequence[Sequence[Step]], adapter: Sequence[Sequence[Step]]) -> float:
    return middle(adapter, "seconds") / middle(own, "seconds")


def made_with(results: Sequence[dict[str, Any]]) -> str:
    """Machine, versions and commits of the results."""
    done = [found for found in results if "failed" not in found]
    if not done:
        return ""
    versions = ", ".join(f"{f['trainer']} {release(f)} (n = {f['n']})" for f in done)
    commits = sorted({f"`{f['commit'][:10]}{'+' * f['commit'].endswith('+')}`" for f in done})
    return (
        f"{done[0]['processor']}, {done[0]['cores']} cores; {versions}, n counting the steps of "
        f"each side; commit {', '.join(commits)} (`+`: with uncommitted changes).\n"
    )


def release(found: dict[str, Any]) -> str:
    """Version of the trainer's package."""
    package = {"oat": "oat-llm", "rl2": "rl-square"}.get(found["trainer"], found["trainer"])
    return str(found["versions"].get(package, ""))


if __name__ == "__main__":
    sys.exit(main())
