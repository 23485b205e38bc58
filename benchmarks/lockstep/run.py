"""Five trainers, one curve: runs of one recipe compared token by token.

    .venvs/core/bin/python benchmarks/lockstep/run.py                # run what is missing
    .venvs/core/bin/python benchmarks/lockstep/run.py --only ppo     # one experiment
    .venvs/core/bin/python benchmarks/lockstep/run.py --only gemma --accept-terms
    .venvs/core/bin/python benchmarks/lockstep/run.py --table-only   # from the results

Each experiment is what ``gem-core compare --lockstep`` runs. The controls are runs of one trainer
that were made to differ: they show how small a difference would have been seen. The exit code is 1
if trainers differ by more than rounding, or before the fifteenth step (of a run that has as many).
Experiments with Gemma 3 270M run with ``--accept-terms`` only (https://ai.google.dev/gemma/terms).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gem_compare.grid import Cell, make_grid
from gem_compare.lockstep.differences import LOGPROBS, differences, drifts
from gem_compare.lockstep.divergence import first_divergence
from gem_compare.lockstep.page import headline, sections, title
from gem_compare.lockstep.plots import picture
from gem_compare.lockstep.recipe import overrides
from gem_compare.lockstep.report import write_summary
from gem_compare.lockstep.summary import Summary, faults, summarize
from gem_compare.lockstep.traces import Trace, read_trace
from gem_compare.results import read_cells
from gem_compare.runner import GridPlan, run_grid, trainer_python
from gem_core.results import markdown_table
from gem_core.runs import provenance
from gem_core.runs.directory.run_dir import RunDir

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE / "README.md"
TRAINERS = ("oat", "openrlhf", "rl2", "trl", "verl")
PROFILE = "tiny"
MODEL = "gemma-3-270m"
"""The pretrained model of experiments with the profile of its name."""


class Experiment(NamedTuple):
    """One recipe in every trainer.

    Attributes:
        name: of its result file.
        baseline: the recipe.
        steps: training steps.
        extra: overrides beyond those of every lockstep run.
        why: why there are such, in whole sentences.
        algorithm: of the suite.
        label: what the heading says beyond baseline, algorithm and seed.
        profile: of the recipe; with ``gemma`` the model is `MODEL`.
    """

    name: str
    baseline: str
    steps: int
    extra: tuple[str, ...] = ()
    why: str = ""
    algorithm: str = "rebn"
    label: str = ""
    profile: str = PROFILE

    def title(self, summary: Summary) -> str:
        """Return the heading of its section."""
        return f"{title(summary)}, {self.label}" if self.label else title(summary)


EXPERIMENTS = (
    Experiment("guess", "guess-the-number-easy", 20),
    Experiment(
        "hanoi",
        "tower-of-hanoi-easy",
        16,
        ("algorithm.lr=2e-4",),
        "The learning rate is a fifth of the profile's. At 1e-3 each step makes the differences of "
        "rounding about three times larger (this batch has 32 episodes, the other 96), so that the "
        "first tokens flip at the tenth step.",
    ),
    Experiment(
        "ppo",
        "tower-of-hanoi-easy",
        16,
        ("algorithm.lr=2e-4",),
        "Each trainer trains a critic of its own; all of them begin with V = 0. The learning rate "
        "is that of the experiment above.",
        algorithm="ppo",
    ),
    Experiment(
        "history-last",
        "guess-the-number-easy",
        12,
        ("context.history=last",),
        "Each prompt is the last observation alone, so that each turn is a row of its own.",
        label="history last",
    ),
    Experiment(
        "history-window",
        "guess-the-number-easy",
        12,
        ("context.history=window", "context.window=2"),
        "Each prompt has the last two turns, so that an episode of three turns or more has several "
        "rows.",
        label="history window",
    ),
    Experiment(
        "history-compact",
        "guess-the-number-easy",
        12,
        (
            "context.history=compact",
            "context.compact.budget=40",
            "context.compact.max_tokens=4",
            "algorithm.lr=2e-4",
        ),
        "Where a prompt would have more than 40 tokens the policy is asked for a summary, which is "
        "a turn that is trained on, and the next row begins with it. The warm start has never seen "
        "such a request: that trainers agree is shown here, not that summaries help. The learning "
        "rate is a fifth of the profile's: at 1e-3 a tie of two tokens was decided by rounding in "
        "step 10, by differences of 4e-4 after nine equal steps (Oat, RL2 and TRL on one side, "
        "OpenRLHF and verl on the other).",
        label="history compact",
    ),
    Experiment(
        "drawn",
        "guess-the-number-easy",
        12,
        ("sampling.top_p=0.8", "sampling.top_k=20", "sampling.support=drawn"),
        "The least likely tokens are cut off, and log-probabilities are among those that could be "
        "drawn in each place.",
        label="top-p 0.8 and top-k 20",
    ),
    Experiment(
        "stale",
        "guess-the-number-easy",
        12,
        ("sampling.staleness=2", "sampling.refresh_turns=2"),
        "Weights that are two steps old begin each episode, and after every two turns it goes on "
        "with those of the next step, until it has the newest. A virtual clock decides that, not "
        "the order in which anything arrives.",
        label="old weights",
    ),
    Experiment(
        "gemma",
        "natural-questions-search",
        6,
        why="A pretrained model of 100 million weights (the vocabulary is cut to the tokens of the "
        "task) asks a search tool and answers. The warm start is made once; all begin with it.",
        label="Gemma 3 270M",
        profile="gemma",
    ),
)
CONTROL_STEPS = 6
CONTROLS = {
    "learning rate 0.1 % higher": ("algorithm.lr=1.001e-3",),
    "clip range 0.2 -> 0.21": ("algorithm.clip_low=0.21", "algorithm.clip_high=0.21"),
    "gamma 0.9 -> 0.899": ("algorithm.gamma=0.899",),
}
"""What was changed in one trainer -> the overrides; on the first experiment."""
CONTROLLED = "openrlhf"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("build/lockstep"), help="(%(default)s)")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    names = [experiment.name for experiment in EXPERIMENTS]
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--only", choices=names, nargs="+", help="run these experiments, and no controls"
    )
    choice.add_argument("--controls", action="store_true", help="run the controls only")
    parser.add_argument("--accept-terms", action="store_true", help="accept Gemma's terms of use")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    if "gemma" in (arguments.only or ()) and not arguments.accept_terms:
        parser.error("gemma needs --accept-terms: https://ai.google.dev/gemma/terms")
    if not arguments.table_only:
        provenance.check_option(parser, arguments)
        for experiment in EXPERIMENTS:
            if arguments.controls or experiment.name not in (arguments.only or names):
                continue
            if experiment.profile == PROFILE or arguments.accept_terms:
                write_summary(run(experiment, arguments.out), RESULTS / f"{experiment.name}.json")
            else:
                print(f"{experiment.name} is left out: it needs --accept-terms", file=sys.stderr)
        if arguments.only is None:
            write_summary(run_controls(arguments.out), RESULTS / "controls.json")
    summaries = [read(experiment.name) for experiment in EXPERIMENTS]
    controls = read("controls")["controls"]
    for experiment, summary in zip(EXPERIMENTS, summaries, strict=True):
        first = experiment is EXPERIMENTS[0]
        lines = {row["change"]: row["drift"] for row in controls} if first else {}
        picture(summary, HERE / f"{experiment.name}.png", lines)
    PAGE.write_text(page(summaries, controls), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
    return int(any(faults(summary) for summary in summaries))


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def run(experiment: Experiment, out: Path) -> Summary:
    """Run the experiment in every trainer, or what is missing of it."""
    cells = make_grid([experiment.baseline], TRAINERS, [experiment.algorithm], [0])
    require(run_grid(cells, plan_of(experiment, out)), len(cells))
    return summarize([cell for cell in read_cells(out / experiment.name) if cell.result])


def plan_of(experiment: Experiment, out: Path) -> GridPlan:
    """Return where and with which settings the experiment runs."""
    extra = (*overrides(experiment.steps), *experiment.extra)
    if experiment.profile != PROFILE:
        extra += (f"model.path={get_model(experiment)}",)
    return GridPlan(out / experiment.name, experiment.profile, extra)


def get_model(experiment: Experiment) -> str:
    """Return the pretrained model with the tokens of a baseline, and make what is missing of it.

    Its terms have been accepted.
    """
    words = ["model", "get", MODEL, "--accept-terms", "--json", "--profile", experiment.profile]
    words += ["--trim-vocabulary", experiment.baseline]
    line = [trainer_python("trl"), "-m", "gem_core.cli", *words]
    done = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True)
    folder: str = json.loads(done.stdout)["folder"]
    return folder


def run_controls(out: Path) -> dict[str, Any]:
    """Run one trainer with each change, and compare it with its own run of the first experiment."""
    commit = provenance.commit()  # of the code that runs, not of a later one
    first = EXPERIMENTS[0]
    cell = Cell(first.baseline, CONTROLLED, "rebn", 0)
    unchanged = plan_of(first, out)
    require(run_grid([cell], unchanged), 1)
    whole = read_trace(RunDir(unchanged.directory(cell)))
    rows = []
    for number, (change, extra) in enumerate(CONTROLS.items()):
        plan = GridPlan(
            out / f"control-{number}", PROFILE, (*overrides(CONTROL_STEPS), *first.extra, *extra)
        )
        require(run_grid([cell], plan), 1)
        rows.append(control(change, whole, read_trace(RunDir(plan.directory(cell)))))
    return {"commit": commit, "controls": rows}


def require(states: dict[str, int], count: int) -> None:
    if states["done"] != count:
        raise SystemExit(f"Not every run finished: {states}. See their log.txt.")


def control(change: str, whole: Trace, changed: Trace) -> dict[str, Any]:
    """Return what lockstep shows of a change."""
    divergence = first_divergence(whole, changed, "train")
    identical = CONTROL_STEPS if divergence is None else divergence.step - 1
    steps = range(1, identical + 1)
    last = min(identical + 1, CONTROL_STEPS)  # of the step that parts, the equal actions
    begins = {row.quantity: row.begins for row in differences(whole, changed, steps) if row.begins}
    return {
        "change": change,
        "trainer": CONTROLLED,
        "steps": CONTROL_STEPS,
        "drift": [drifts(whole, changed, step) for step in range(1, last + 1)],
        "begins": begins,
        "parting": None if divergence is None else divergence.to_dict(),
    }


def page(summaries: Sequence[Summary], controls: Sequence[dict[str, Any]]) -> str:
    """Return the page in Markdown."""
    parts = [_HEAD]
    both = list(zip(EXPERIMENTS, summaries, strict=True))
    parts += [f"- {one.title(summary)}: {headline(summary)}" for one, summary in both]
    second = max(pair["drift"][1] for summary in summaries for pair in summary["pairs"])
    parts += [
        "",
        _CONTROLS.format(second=second),
        markdown_table(_CONTROL_HEAD, [_control_row(r) for r in controls]),
    ]
    for experiment, summary in both:
        parts.append(f"## {experiment.title(summary)}\n")
        parts += [f"{_settings(experiment)}{experiment.why}\n"] if experiment.why else []
        parts.append(f"![success and differences of {experiment.name}]({experiment.name}.png)\n")
        parts += sections(summary)
    return "\n".join(parts)


_HEAD = """# Lockstep

The five trainers run one recipe on a CPU. The engine draws each token with noise that is keyed by
run, task, turn and position, so equal weights draw equal tokens: a run of one trainer coincides
with that of another until rounding decides a tie between two tokens. Where two runs differ for
another reason, the trainers differ, and the page shows the token.

Written by `benchmarks/lockstep/run.py`; the same for any recipe: `gem-core compare --lockstep`.
The recipe is the baseline in the profile `tiny` (float32) where a section names no other, with a
constant schedule.
"""
_CONTROLS = """## How small a difference would have been seen

One trainer, run again with a small change, beside its own run without it. Between two *different*
trainers the log-probabilities of the second step differ by {second:.1e} at most.
"""
_CONTROL_HEAD = ("change", "trainer", "log-probabilities of step 2", "seen in", "tokens differ")


def _settings(experiment: Experiment) -> str:
    """Return the sentence that says what the recipe has beyond that of every lockstep run."""
    settings = ", ".join(f"`{item}`" for item in experiment.extra)
    profile = "" if experiment.profile == PROFILE else f"Profile `{experiment.profile}`. "
    return profile + (f"With {settings}. " if settings else "")


def _control_row(row: dict[str, Any]) -> tuple[str, ...]:
    drift = row["drift"]
    second = f"{drift[1]:.1e}" if len(drift) > 1 and drift[1] is not None else "-"
    begins = dict(row["begins"])
    names = sorted(begins, key=lambda name: (begins[name], name != LOGPROBS))
    shown = ", ".join(f"{name} (step {begins[name]})" for name in names) or "nothing"
    divergence = row["parting"]
    parts = f"step {divergence['step']}" if divergence else f"not in {row['steps']} steps"
    return (row["change"], row["trainer"], second, shown, parts)


if __name__ == "__main__":
    sys.exit(main())
