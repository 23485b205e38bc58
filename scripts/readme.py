#!/usr/bin/env python3
"""Write generated parts of README.md and of pages: ``python scripts/readme.py [--check]``.

A part is the text between ``<!-- NAME -->`` and ``<!-- /NAME -->``: the table of trainers comes
from the adapters' declarations, the figures of the quickstart and of the lockstep from their
committed results. So does the picture of the quickstart.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from quickstart_figures import in_words, judged_quickstart
from quickstart_picture import picture
from release import REPOSITORY, with_absolute_links

from gem_compare.lockstep.page import headline, title
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
    old = {path: text for path, text in generated().items() if current(path) != text}
    for path, text in old.items():
        if check:
            print(f"{path} is out of date: run python scripts/readme.py")
        else:
            path.write_text(text, encoding="utf-8")
    return int(check and bool(old))


def generated() -> dict[Path, str]:
    """Return the pages and the picture as they should be."""
    found = judged_quickstart()
    parts = {"trainers": trainers(), "quickstart": in_words(found), "lockstep": lockstep()}
    docs = ROOT / "docs"
    pages = {
        ROOT / "README.md": parts,
        docs / "start.md": {"quickstart": in_words(found, "../")},
    }
    texts = {path: filled(path, current(path), named) for path, named in pages.items()}
    front = ROOT / "README.md"
    texts[front] = with_absolute_links(texts[front], REPOSITORY)
    return {**texts, docs / "pictures" / "quickstart.svg": picture(found)}


def current(path: Path) -> str:
    """Return a file as it is; "" if there is none."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


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


def lockstep() -> str:
    """Return what the committed lockstep runs show, and how small a difference they would show."""
    folder = Path("benchmarks") / "lockstep"
    files = {path.stem: path for path in sorted((ROOT / folder / "results").glob("*.json"))}
    read = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items()}
    controls = read.pop("controls")["controls"]
    pairs = [pair for summary in read.values() for pair in summary["pairs"]]
    relative = max(pair["weights"]["relative"] for pair in pairs)
    second = max(pair["drift"][1] for pair in pairs)
    whole = max(size for pair in pairs for size in pair["drift"] if size is not None)
    seen = [f"{row['change']}: {row['drift'][1]:.0e}" for row in controls]
    first = read["guess"]
    if not all(
        re.search(r" in (\d+) of \1 training steps", headline(one)) for one in read.values()
    ):
        raise SystemExit("Trainers drew different tokens in a lockstep run: edit lockstep().")
    return (
        f"![success of the five trainers: the curves coincide]({folder / 'guess.png'})\n\n"
        f"On a CPU, with a two-layer model in float32:\n{title(first)}: {headline(first)}\n"
        f"So did they in {len(read) - 1} more recipes (PPO, another game, rewritten histories, "
        "truncated sampling, old weights, a pretrained model, Gemma 3 270M). "
        f"The trained weights of two trainers differ by {relative:.0e} at most (relative L2),\n"
        f"the log-probabilities by {second:.0e} at most in the second step and by {whole:.0e} in "
        "any. A change of one trainer is seen in its second step: " + "; ".join(seen) + ".\n"
        f"Every step, every difference: [{folder}]({folder / 'README.md'}). What this proves and "
        "what not: [docs/compare.md](docs/compare.md).\n"
    )


if __name__ == "__main__":
    sys.exit(main())
