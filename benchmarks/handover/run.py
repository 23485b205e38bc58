"""One policy through five trainers: each goes on with the model that the one before it left.

    .venvs/trl/bin/python benchmarks/handover/run.py               # train all legs, then draw
    .venvs/trl/bin/python benchmarks/handover/run.py --table-only  # from the committed results

Every leg is a run of ``gem-core train --from`` in its trainer's own environment. The page says for
each hand-over whether success fell by more than the half width of the evaluation's 95 % interval;
the exit code is 1 if one did.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from gem_core.compare.runner import trainer_python
from gem_core.report import learning_curve, markdown_table, record
from gem_core.report.tables import success
from gem_core.training.runs import RunDir

HERE = Path(__file__).resolve().parent
RESULTS, PAGE, PICTURE = HERE / "results", HERE / "README.md", HERE / "curve.png"
CHAIN = ("trl", "verl", "openrlhf", "oat", "rl2")
BASELINE = ["guess-the-number-easy", "--profile", "tiny"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trainers", nargs="+", default=CHAIN, help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=12, help="of each leg (%(default)s)")
    parser.add_argument("--out", type=Path, help="keep the whole runs here; finished legs stay")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    if not arguments.table_only:
        with tempfile.TemporaryDirectory() as folder:
            legs = train(arguments.trainers, arguments.steps, arguments.out or Path(folder))
            for leg in legs:
                record(leg, RESULTS / leg.path.name)
    runs = [RunDir(path) for path in sorted(RESULTS.iterdir())]
    learning_curve(runs, PICTURE)
    PAGE.write_text(page(runs), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
    return int(any(fall(*pair) > width(pair[0]) for pair in pairwise(runs)))


def train(trainers: list[str], steps: int, out: Path) -> list[RunDir]:
    """Train leg after leg; one that is finished is not trained again."""
    legs: list[RunDir] = []
    for number, trainer in enumerate(trainers, start=1):
        leg = RunDir(out / f"{number}-{trainer}")
        start = ["--from", str(legs[-1].path)] if legs else BASELINE
        command = [trainer_python(trainer), "-m", "gem_core.cli", "train", *start]
        command += ["--trainer", trainer, "--run", str(leg.path), "--set", f"train.steps={steps}"]
        if not leg.finished:
            print(f"==> leg {number}: {trainer}", flush=True)
            subprocess.run([*command, "--resume"] if leg.exists else command, check=True)
        legs.append(leg)
    return legs


def fall(before: RunDir, after: RunDir) -> float:
    """What success lost between the end of one leg and the beginning of the next."""
    end, begin = before.result["after"], after.result["before"]
    return float(end["success/mean"] - begin["success/mean"])


def width(run: RunDir) -> float:
    """Half the 95 % interval of the evaluation at a leg's end."""
    found = run.result["after"]
    return float(found["success/high"] - found["success/low"]) / 2


def page(runs: list[RunDir]) -> str:
    rows = []
    for number, run in enumerate(runs):
        result = run.result
        lost = f"{fall(runs[number - 1], run):+.3f}" if number else ""
        held = "" if not number else "yes" if fall(runs[number - 1], run) <= width(run) else "NO"
        ends = success(result["before"]), success(result["after"])
        rows.append((run.path.name, str(result["steps"]), *ends, lost, held))
    head = ("leg", "steps", "success before", "success after", "lost at hand-over", "held")
    result = runs[0].result
    return (
        "# One policy through five trainers\n\n"
        "Made by `python benchmarks/handover/run.py`: `gem-core train --from RUN` starts any "
        "trainer\nfrom the model, and after the tasks, of any other. "
        f"{result['name']}, {result['estimator']}, the tiny CPU\nprofile, seed {result['seed']}; "
        f"success on {result['n']} held-out episodes with its 95 % interval.\n\n"
        "![one curve through five trainers](curve.png)\n\n"
        f"{markdown_table(head, rows)}"
    )


if __name__ == "__main__":
    sys.exit(main())
