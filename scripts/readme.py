#!/usr/bin/env python3
"""Write generated parts of README.md and docs/compare.md: ``python scripts/readme.py [--check]``.

A part is the text between ``<!-- NAME -->`` and ``<!-- /NAME -->``: the table of trainers comes
from the adapters' declarations, the figures of the quickstart, of the lockstep and of the whole
runs from their committed results.
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


def main() -> int:
    """Write the pages, or with ``--check`` tell whether they are up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check",
        action="store_true",
        help="only check, with exit status 1 if out of date",
    )
    check = parser.parse_args().check
    parts = {"trainers": trainers(), "quickstart": quickstart(), "lockstep": lockstep()}
    wanted = {
        ROOT / "README.md": parts,
        ROOT / "docs" / "compare.md": {"whole-runs": whole_runs()},
    }
    old = []
    for path, named in wanted.items():
        current = path.read_text(encoding="utf-8")
        page = filled(path, current, named)
        if page != current:
            old.append(path)
            if not check:
                path.write_text(page, encoding="utf-8")
    if check:
        for path in old:
            print(f"{path} is out of date: run python scripts/readme.py")
    return int(check and bool(old))


def filled(path: Path, page: str, parts: dict[str, str]) -> str:
    """Return a page with its generated parts as they should be."""
    for name, text in parts.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->\n)"
        page, count = re.subn(pattern, lambda m, t=text: m[1] + t + m[2], page, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{path}: the part {name!r} occurs {count} times")
    return page


def trainers() -> str:
    """Return one line per adapter."""
    rows = []
    for name, trainer in list_trainers().items():
        low, below = trainer.python
        last = f"{below[0]}.{below[1] - 1}"
        python = last if below[1] == low[1] + 1 else f"{low[0]}.{low[1]} to {last}"
        adapter = f"[gem_{name}](integrations/gem_{name}/README.md)"
        accepted = f"`{trainer.distribution} {trainer.tested_range}`"
        rows.append((f"`{name}`", accepted, python, adapter, f"`make env-{name} test-{name}`"))
    head = ("trainer", "accepted versions", "Python", "adapter", "try it on a CPU")
    return markdown_table(head, rows)


def quickstart() -> str:
    """Return the results of the committed runs of the quickstart."""
    files = sorted((ROOT / "benchmarks" / "quickstart" / "results").glob("seed*/result.json"))
    results = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    before, after = (mean(r[when]["success/mean"] for r in results) for when in ("before", "after"))
    worst = min(r["after"]["success/mean"] for r in results)
    seeds = "1 seed" if len(results) == 1 else f"{len(results)} seeds"
    return (
        f"Success on {results[0]['n']} evaluation episodes, mean of {seeds}: "
        f"**{before:.2f} before, {after:.2f} after** {results[0]['steps']} steps (worst seed "
        f"{worst:.2f}; [every seed](benchmarks/quickstart/README.md)).\n"
    )


def lockstep() -> str:
    """Return what the committed lockstep runs show, and how small a difference they would show."""
    folder = Path("benchmarks") / "lockstep"
    files = {path.stem: path for path in sorted((ROOT / folder / "results").glob("*.json"))}
    read = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items()}
    controls = read.pop("controls")["controls"]
    pairs = [pair for summary in read.values() for pair in summary["pairs"]]
    relative = max(pair["weights"]["relative"] for pair in pairs)
    second = max(pair["drift"][1] for pair in pairs)
    seen = [f"{row['change']}: {row['drift'][1]:.0e}" for row in controls]
    first = next(iter(read.values()))
    if not all(
        re.search(r" in (\d+) of \1 training steps", headline(one)) for one in read.values()
    ):
        raise SystemExit("Trainers drew different tokens in a lockstep run: edit lockstep().")
    return (
        f"![success of the five trainers: the curves coincide]({folder / 'guess.png'})\n\n"
        f"On a CPU, with a two-layer model in float32:\n{title(first)}: {headline(first)}\n"
        f"So did they in {len(read) - 1} more recipes. "
        f"The trained weights of two trainers differ by {relative:.0e} at most (relative L2). A "
        f"change of one trainer is seen in\nthe log-probabilities of its second step, where two "
        f"trainers differ by {second:.0e} at most: " + "; ".join(seen) + ".\n"
        f"Every step, every difference: [{folder}]({folder / 'README.md'}). What this proves and "
        "what not: [docs/compare.md](docs/compare.md).\n"
    )


def whole_runs() -> str:
    """Return the trainers on one experiment, by the statistics of whole runs."""
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
        raise SystemExit("The trainers differ by more than chance: edit whole_runs().")
    return (
        "![success rate of the five trainers on one experiment]"
        f"(../{folder / f'curves-{baseline}.png'})\n\n"
        f"{markdown_table(head, rows)}\n"
        f"`{first['name']}`, ReBN, the tiny CPU profile, {first['steps']} steps; success on "
        f"{first['n']} evaluation episodes.\nBands are 95 % intervals over seeds. A permutation "
        f"test finds no difference between the trainers (p = {chance[baseline, 'rebn']});\nwith "
        "three seeds it would have missed a trainer that is worse by less than "
        f"{deficit[baseline, 'rebn']} (power 80 %), so this does not prove\nthat they are equal. "
        f"Over all {len(lines) - 1} experiments p = {chance['all', '-']}, and the smallest deficit "
        f"that would have been found is {deficit['all', '-']}.\nFour baselines, four algorithms, "
        "every cell: [trainers side by side](../benchmarks/trainers/README.md)\n"
    )


if __name__ == "__main__":
    sys.exit(main())
