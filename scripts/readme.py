#!/usr/bin/env python3
"""Write the generated parts of ``README.md``: ``python scripts/readme.py [--check]``.

A part is the text between ``<!-- NAME -->`` and ``<!-- /NAME -->``: the table of trainers comes
from the adapters' declarations, the figures of the quickstart and of the comparison from their
committed results.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from statistics import mean

from gem_compare.agreement import side_by_side
from gem_compare.lockstep.page import headline, title
from gem_compare.results import groups, read_cells
from gem_core.results import markdown_table
from gem_core.runs.trainers import list_trainers

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "README.md"


def main() -> int:
    """Write the page, or with ``--check`` tell whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="only check, with exit status 1 if out of date",
    )
    check = parser.parse_args().check
    current = TARGET.read_text(encoding="utf-8")
    page = current
    parts = {"trainers": trainers(), "quickstart": quickstart(), "comparison": comparison()}
    for name, text in parts.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->\n)"
        page, count = re.subn(pattern, lambda m, t=text: m[1] + t + m[2], page, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{TARGET}: the part {name!r} occurs {count} times")
    if check:
        if page != current:
            print(f"{TARGET} is out of date: run python scripts/readme.py")
        return int(page != current)
    TARGET.write_text(page, encoding="utf-8")
    return 0


def trainers() -> str:
    """Return one line per adapter."""
    rows = []
    for name, trainer in list_trainers().items():
        low, below = trainer.python
        last = f"{below[0]}.{below[1] - 1}"
        python = last if below[1] == low[1] + 1 else f"{low[0]}.{low[1]} to {last}"
        adapter = f"[gem_{name}](integrations/gem_{name}/README.md)"
        tested = f"`{trainer.distribution} {trainer.tested_range}`"
        rows.append((f"`{name}`", tested, python, adapter, f"`make env-{name} test-{name}`"))
    return markdown_table(("trainer", "tested", "Python", "adapter", "try it on a CPU"), rows)


def quickstart() -> str:
    """Return the results of the committed runs of the quickstart."""
    files = sorted((ROOT / "benchmarks" / "quickstart" / "results").glob("seed*/result.json"))
    results = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    before, after = (mean(r[when]["success/mean"] for r in results) for when in ("before", "after"))
    worst = min(r["after"]["success/mean"] for r in results)
    seeds = "1 seed" if len(results) == 1 else f"{len(results)} seeds"
    return (
        "![success rate over the training steps of the quickstart]"
        "(benchmarks/quickstart/learning-curve.png)\n\n"
        f"Success on {results[0]['n']} evaluation episodes, mean of {seeds}: "
        f"**{before:.2f} before, {after:.2f} after** {results[0]['steps']} steps (worst seed "
        f"{worst:.2f}). Every seed and how it was measured: ["
        "benchmarks/quickstart](benchmarks/quickstart/README.md).\n"
    )


def lockstep() -> str:
    """Return what the committed lockstep runs show, and how small a difference they would show."""
    folder = Path("benchmarks") / "lockstep"
    files = {path.stem: path for path in sorted((ROOT / folder / "results").glob("*.json"))}
    read = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items()}
    controls = read.pop("controls")["controls"]
    lines = [f"- {title(summary)}: {headline(summary)}" for summary in read.values()]
    pairs = [pair for summary in read.values() for pair in summary["pairs"]]
    relative = max(pair["weights"]["relative"] for pair in pairs)
    second = max(pair["drift"][1] for pair in pairs)
    seen = [f"{row['change']}: {row['drift'][1]:.0e}" for row in controls]
    return (
        f"![success of the five trainers: the curves coincide]({folder / 'guess.png'})\n\n"
        "On a CPU, equal weights draw equal tokens, so the trainers' runs coincide until rounding "
        "decides a tie:\n\n" + "\n".join(lines) + "\n\n"
        f"The trained weights of two trainers differ by {relative:.0e} at most (relative L2). How "
        "sensitive this is: in the second step,\nthe log-probabilities of two trainers differ "
        f"by {second:.0e} at most; of one trainer with a small change, by more ("
        + "; ".join(seen)
        + f").\nEvery step and every difference: [{folder}]({folder / 'README.md'})\n"
    )


def comparison() -> str:
    """Return the trainers on one experiment: lockstep, then the statistics of the whole runs."""
    folder = Path("benchmarks") / "trainers" / "results"
    baseline = "guess-the-number-easy"
    finished = [c for c in read_cells(ROOT / folder) if c.baseline == baseline and c.result]
    cells = [c for c in finished if c.algorithm == "rebn"]
    rows = []
    for (_, _, trainer), members in groups(cells).items():
        rates = [[c.result[when]["success/mean"] for c in members] for when in ("before", "after")]
        each = ", ".join(f"{value:.3f}" for value in rates[1])
        rows.append((f"`{trainer}`", f"{mean(rates[0]):.3f}", f"{mean(rates[1]):.3f}", each))
    first = cells[0].result
    _, lines = side_by_side(read_cells(ROOT / folder))
    chance = {line[:2]: line[-2] for line in lines}
    deficit = {line[:2]: line[-1] for line in lines}
    head = ("trainer", "success before", "after, mean of the seeds", "after, each seed")
    if min(float(chance[baseline, "rebn"]), float(chance["all", "-"])) < 0.05:
        raise SystemExit("The trainers differ by more than chance: edit comparison().")
    return (
        f"{lockstep()}\n"
        "Whole runs differ after some step, and are then compared by statistics.\n\n"
        "![success rate of the five trainers on one experiment]"
        f"({folder / f'curves-{baseline}.png'})\n\n"
        f"{markdown_table(head, rows)}\n"
        f"`{first['name']}`, ReBN, the tiny CPU profile, {first['steps']} steps; success on "
        f"{first['n']} evaluation episodes.\nBands are 95 % intervals over seeds. A permutation "
        f"test finds no difference between the trainers (p = {chance[baseline, 'rebn']});\nwith "
        "three seeds it would have missed a trainer that is worse by less than "
        f"{deficit[baseline, 'rebn']} (power 80 %), so this does not prove\nthat they are equal. "
        f"Over all {len(lines) - 1} experiments p = {chance['all', '-']}, and the smallest deficit "
        f"that would have been found is {deficit['all', '-']}.\nFour baselines, four algorithms, "
        "every cell: [benchmarks/trainers](benchmarks/trainers/README.md)\n"
    )


if __name__ == "__main__":
    sys.exit(main())
