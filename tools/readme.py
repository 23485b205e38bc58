#!/usr/bin/env python3
"""Write the generated parts of ``README.md``: ``python tools/readme.py [--check]``.

A part stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``: the table of trainers comes from the
adapters' declarations, the figures of the quickstart and of the comparison from their committed
results.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from statistics import mean

from gem_core.compare.agreement import side_by_side
from gem_core.compare.results import groups, read_cells
from gem_core.report import markdown_table
from gem_core.training.trainers import list_trainers

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "README.md"


def main() -> int:
    """Write the page, or with ``--check`` tell whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if out of date")
    check = parser.parse_args().check
    current = TARGET.read_text(encoding="utf-8")
    page = current
    parts = {"trainers": trainers(), "quickstart": quickstart(), "comparison": comparison()}
    for name, text in parts.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->\n)"
        page, found = re.subn(pattern, lambda m, t=text: m[1] + t + m[2], page, flags=re.DOTALL)
        if found != 1:
            raise SystemExit(f"{TARGET}: the part {name!r} is there {found} times")
    if check:
        if page != current:
            print(f"{TARGET} is out of date: run python tools/readme.py")
        return int(page != current)
    TARGET.write_text(page, encoding="utf-8")
    return 0


def trainers() -> str:
    """One line per adapter."""
    rows = []
    for name, trainer in list_trainers().items():
        low, below = trainer.python
        python = f"{low[0]}.{low[1]}" if below[1] == low[1] + 1 else f"{low[0]}.{low[1]}+"
        adapter = f"[gem_{name}](integrations/gem_{name}/README.md)"
        tested = f"`{trainer.distribution} {trainer.tested_range}`"
        rows.append((f"`{name}`", tested, python, adapter, f"`make env-{name} test-{name}`"))
    return markdown_table(("trainer", "tested", "Python", "adapter", "try it on a CPU"), rows)


def quickstart() -> str:
    """What the committed runs of the quickstart gave."""
    files = sorted((ROOT / "benchmarks" / "quickstart" / "results").glob("seed*/result.json"))
    results = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    before, after = (mean(r[when]["success/mean"] for r in results) for when in ("before", "after"))
    worst = min(r["after"]["success/mean"] for r in results)
    seeds = "1 seed" if len(results) == 1 else f"{len(results)} seeds"
    return (
        "![success rate over the training steps of the quickstart]"
        "(benchmarks/quickstart/learning-curve.png)\n\n"
        f"Success on {results[0]['n']} held-out seeds, mean of {seeds}: **{before:.2f} before, "
        f"{after:.2f} after** {results[0]['steps']} steps (worst seed {worst:.2f}). Every seed and "
        "how it was measured: [benchmarks/quickstart](benchmarks/quickstart/README.md).\n"
    )


def comparison() -> str:
    """The trainers on one experiment: picture and table of the committed runs."""
    folder = Path("benchmarks") / "trainers" / "results"
    baseline = "guess-the-number-easy"
    finished = [c for c in read_cells(ROOT / folder) if c.baseline == baseline and c.result]
    cells = [c for c in finished if c.algorithm == "rebn"]
    rows = []
    for (_, _, trainer), members in groups(cells).items():
        found = [[c.result[when]["success/mean"] for c in members] for when in ("before", "after")]
        each = ", ".join(f"{value:.3f}" for value in found[1])
        rows.append((f"`{trainer}`", f"{mean(found[0]):.3f}", f"{mean(found[1]):.3f}", each))
    first = cells[0].result
    _, lines = side_by_side(read_cells(ROOT / folder))
    chance = {line[:2]: line[-1] for line in lines}
    head = ("trainer", "success before", "after, mean of the seeds", "after, each seed")
    if min(float(chance[baseline, "rebn"]), float(chance["all", "-"])) < 0.05:
        raise SystemExit("The trainers differ by more than chance: say so in comparison().")
    return (
        "![success rate of the five trainers on one experiment]"
        f"({folder / f'curves-{baseline}.png'})\n\n"
        f"{markdown_table(head, rows)}\n"
        f"`{first['name']}`, ReBN, the tiny CPU profile, {first['steps']} steps; success on "
        f"{first['n']} held-out seeds. Bands are 95 % intervals\nover seeds. Do the trainers "
        f"differ by more than chance? A permutation test finds nothing: p = "
        f"{chance[baseline, 'rebn']} here, p = {chance['all', '-']}\nover all {len(lines) - 1} "
        "experiments. Four baselines, four algorithms, every cell: "
        "[benchmarks/trainers](benchmarks/trainers/README.md)\n"
    )


if __name__ == "__main__":
    sys.exit(main())
