"""What the discount teaches: turns used in GuessTheNumber against log2 n, for several gammas.

    .venvs/trl/bin/python benchmarks/discount/run.py               # runs what is missing first
    .venvs/trl/bin/python benchmarks/discount/run.py --table-only  # from the committed results

The game gives ten turns for a number from 1 to 10, so that every policy that does not repeat
itself wins; only a discount below 1 rewards winning early (compare arXiv 2510.01051, figure 5a,
with 1 to 50 and a large model).
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from gem_core.report import markdown_table, record
from gem_core.report.plots import new_figure, running_mean, save_figure
from gem_core.report.tables import success
from gem_core.training.runs import RunDir

HERE = Path(__file__).resolve().parent
RESULTS, PAGE, PICTURE = HERE / "results", HERE / "README.md", HERE / "turns.png"
GAMMAS = (0.1, 0.5, 0.9, 0.99, 0.999)
NUMBERS, TURNS = 10, 10
ENV = f"env=[{{id='game:GuessTheNumber-v0-easy', kwargs={{max_turns={TURNS}}}}}]"
_COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00")
_WINDOW = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gammas", type=float, nargs="+", default=GAMMAS, help="(%(default)s)")
    parser.add_argument("--trainer", default="trl", help="(%(default)s)")
    parser.add_argument("--again", action="store_true", help="also run what has a result")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    for gamma in () if arguments.table_only else arguments.gammas:
        if arguments.again or not RunDir(RESULTS / f"gamma-{gamma}").finished:
            train(gamma, arguments.trainer)
    runs = [RunDir(path) for path in sorted(RESULTS.iterdir())]
    picture(runs)
    PAGE.write_text(page(runs), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
    return 0


def train(gamma: float, trainer: str) -> None:
    """One run of the tiny profile; its figures are kept."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / f"gamma-{gamma}"
        sets = ["--set", ENV, "--set", f"algorithm.gamma={gamma}"]
        command = [sys.executable, "-m", "gem_core.cli", "train", "guess-the-number-easy"]
        command += ["--profile", "tiny", "--trainer", trainer, "--run", str(run), *sets]
        subprocess.run(command, check=True)
        record(RunDir(run), RESULTS / run.name)


def picture(runs: list[RunDir]) -> None:
    """Turns per episode over the training steps, a line per gamma."""
    figure, ((axes,),) = new_figure()
    for colour, run in zip(_COLOURS, runs, strict=False):
        rows = run.metrics()
        turns = running_mean([row["turns/mean"] for row in rows], _WINDOW)
        label = f"gamma {run.recipe.algorithm.gamma:g}"
        axes.plot([row["step"] for row in rows], turns, color=colour, lw=2, label=label)
    axes.axhline(math.log2(NUMBERS), color="black", ls="--", lw=1)
    axes.annotate(f"log2 {NUMBERS}", (0, math.log2(NUMBERS)), xytext=(2, 3), fontsize=9,
                  textcoords="offset points")  # fmt: skip
    axes.set_xlabel("training step")
    axes.set_ylabel("turns per episode")
    axes.legend(frameon=False)
    save_figure(figure, PICTURE)


def first_below(run: RunDir) -> str:
    """The step from which on the running mean of the turns stays below log2 n; ``-`` for none."""
    means = running_mean([row["turns/mean"] for row in run.metrics()], _WINDOW)
    above = [step for step, mean in enumerate(means, start=1) if mean >= math.log2(NUMBERS)]
    return "-" if above and above[-1] == len(means) else str(above[-1] + 1 if above else 1)


def page(runs: list[RunDir]) -> str:
    rows = []
    for run in runs:
        result = run.result
        before, after = result["before"], result["after"]
        turns = [f"{found['turns/mean']:.2f}" for found in (before, after)]
        rows.append((f"{run.recipe.algorithm.gamma:g}", *turns, first_below(run), success(after)))
    result = runs[0].result
    head = ("gamma", "turns before", "turns after", "below log2 n from step", "success after")
    return (
        "# What the discount teaches\n\n"
        "Made by `python benchmarks/discount/run.py`. A number from 1 to "
        f"{NUMBERS}, {TURNS} turns, {result['estimator']}, {result['trainer']}, the tiny CPU\n"
        f"profile, seed {result['seed']}, {result['steps']} steps; turns and success of "
        f"{result['n']} held-out episodes. Halving the range takes\nabout log2 {NUMBERS} = "
        f"{math.log2(NUMBERS):.2f} turns at most. One seed and a two-layer model: a direction, "
        "not the paper's result.\n\n"
        f"![turns per episode over the training steps](turns.png)\n\n{markdown_table(head, rows)}"
    )


if __name__ == "__main__":
    sys.exit(main())
