"""The effect of the discount: turns in GuessTheNumber compared with log2 n, for several gammas.

    .venvs/trl/bin/python benchmarks/discount/run.py               # first run what is missing
    .venvs/trl/bin/python benchmarks/discount/run.py --table-only  # from the committed results

The game has ten turns for a number from 1 to 10, so that every policy that does not repeat a guess
wins; only a discount below 1 rewards winning early (compare arXiv 2510.01051, figure 5a, with 1 to
50 and a large model).
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from gem_core.results import markdown_table, record
from gem_core.results.plots import new_figure, running_mean, save_figure
from gem_core.results.tables import success
from gem_core.runs import provenance
from gem_core.runs.directory.run_dir import RunDir

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE / "README.md"
PICTURE = HERE / "turns.png"
GAMMAS = (0.1, 0.5, 0.9, 0.99, 0.999)
NUMBERS = 10
TURNS = 10
ENV = f"env=[{{id='game:GuessTheNumber-v0-easy', kwargs={{max_turns={TURNS}}}}}]"
_COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00")
_WINDOW = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gammas", type=float, nargs="+", default=GAMMAS, help="(%(default)s)")
    parser.add_argument("--trainer", default="trl", help="(%(default)s)")
    parser.add_argument("--again", action="store_true", help="also run gammas that have a result")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    if not arguments.table_only:
        provenance.check_option(parser, arguments)
        for gamma in arguments.gammas:
            if arguments.again or not RunDir(RESULTS / f"gamma-{gamma}").finished:
                train(gamma, arguments.trainer)
    runs = [RunDir(path) for path in sorted(RESULTS.iterdir())]
    picture(runs)
    PAGE.write_text(page(runs), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
    return 0


def train(gamma: float, trainer: str) -> None:
    """Run the tiny profile once and record its figures."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / f"gamma-{gamma}"
        sets = ["--set", ENV, "--set", f"algorithm.gamma={gamma}"]
        command = [sys.executable, "-m", "gem_core.cli", "train", "guess-the-number-easy"]
        command += ["--profile", "tiny", "--trainer", trainer, "--run", str(run), *sets]
        subprocess.run(command, check=True)
        record(RunDir(run), RESULTS / run.name)


def picture(runs: list[RunDir]) -> None:
    """Draw the turns per episode over the training steps, with a line per gamma."""
    figure, ((axes,),) = new_figure()
    for colour, run in zip(_COLOURS, runs, strict=False):
        rows = run.metrics()
        turns = running_mean([row["turns/mean"] for row in rows], _WINDOW)
        label = f"gamma {run.recipe.algorithm.gamma:g}"
        axes.plot([row["step"] for row in rows], turns, color=colour, lw=2, label=label)
    axes.axhline(math.log2(NUMBERS), color="black", ls="--", lw=1)
    axes.annotate(
        f"log2 {NUMBERS}",
        (0, math.log2(NUMBERS)),
        xytext=(2, 3),
        fontsize=9,
        textcoords="offset points",
    )
    axes.set_xlabel("training step")
    axes.set_ylabel("turns per episode")
    axes.legend(frameon=False)
    save_figure(figure, PICTURE)


def first_below(run: RunDir) -> str:
    """Return the step from which the running mean of the turns stays below log2 n, or ``-``."""
    means = running_mean([row["turns/mean"] for row in run.metrics()], _WINDOW)
    above = [step for step, mean in enumerate(means, start=1) if mean >= math.log2(NUMBERS)]
    last_above = above[-1] if above else 0
    return "-" if last_above == len(means) else str(last_above + 1)


def halving_turns(numbers: int) -> float:
    """Return the mean number of turns of a player who always guesses the middle."""
    if numbers == 0:
        return 0.0
    left = (numbers - 1) // 2
    rest = numbers - 1 - left
    return 1 + (left * halving_turns(left) + rest * halving_turns(rest)) / numbers


def halving_depth(numbers: int) -> int:
    """Return the largest number of turns of that player."""
    return numbers.bit_length()


def page(runs: list[RunDir]) -> str:
    rows = []
    for run in runs:
        result = run.result
        after = result["after"]
        rows.append(
            (
                f"{run.recipe.algorithm.gamma:g}",
                f"{result['before']['turns/mean']:.2f}",
                f"{after['turns/mean']:.2f}",
                first_below(run),
                success(after),
            )
        )
    result = runs[0].result
    head = ("gamma", "turns before", "turns after", "below log2 n from step", "success after")
    return (
        "# The effect of the discount\n\n"
        "Made by `python benchmarks/discount/run.py`. A number from 1 to "
        f"{NUMBERS}, {TURNS} turns, {result['estimator']}, {result['trainer']}, the tiny CPU\n"
        f"profile, seed {result['seed']}, {result['steps']} steps; turns and success of "
        f"{result['n']} evaluation episodes. Always halving the range of {NUMBERS} numbers takes\n"
        f"{halving_turns(NUMBERS):.1f} turns in the mean and {halving_depth(NUMBERS)} at most; "
        f"log2 {NUMBERS} = {math.log2(NUMBERS):.2f} is the line of the paper's figure. With one "
        "seed and a two-layer\nmodel, this shows a tendency, not the paper's result.\n\n"
        f"![turns per episode over the training steps](turns.png)\n\n{markdown_table(head, rows)}"
    )


if __name__ == "__main__":
    sys.exit(main())
