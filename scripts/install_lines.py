#!/usr/bin/env python3
"""Write the install lines for GPU machines into the pages: ``python scripts/install_lines.py``.

The lines are those of ``gem_core/runs/install.toml``; a part of a page is the text between
``<!-- gpu -->`` and ``<!-- /gpu -->``. The Dockerfiles of the trainers are written, too.
``--check`` only tells whether all of them are up to date.

``--resolve`` asks a resolver (uv: ``pip install uv``) whether all pins of a trainer's lines,
gem-core's own extra included, can be installed together on Linux with its Python, and writes what
it chose to ``constraints/gpu/NAME.txt``. It needs the package index and downloads metadata only.
What it cannot see: whether flash-attn compiles, and whether the packages work on a GPU.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from dockerfile_parts import dockerfile

from gem_core.runs.install import shell_block, stack, stacks
from gem_core.runs.trainers import get_trainer

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "install.md"
RESOLVED = ROOT / "constraints" / "gpu"
TITLES = {"trl": "TRL", "verl": "verl", "openrlhf": "OpenRLHF", "oat": "Oat", "rl2": "RL2"}
PLATFORM = "x86_64-manylinux_2_28"
PART = re.compile(r"(<!-- gpu -->\n).*?(<!-- /gpu -->\n)", flags=re.DOTALL)


def main() -> int:
    """Write or check the pages, or resolve the lines; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--check", action="store_true", help="only check the pages")
    modes.add_argument("--resolve", nargs="*", metavar="NAME", help="resolve the lines of trainers")
    options = parser.parse_args()
    if options.resolve is not None:
        return max([resolve(name) for name in options.resolve or stacks()])
    wanted = {**pages(), **dockerfiles()}
    old = [path for path, text in wanted.items() if not path.exists() or read(path) != text]
    for path in old:
        if options.check:
            print(f"{path.relative_to(ROOT)} is out of date: run python scripts/install_lines.py")
        else:
            path.write_text(wanted[path], encoding="utf-8")
    return int(bool(old and options.check))


def pages() -> dict[Path, str]:
    """Return every page with its part as it should be."""
    wanted = {PAGE: "\n".join([drivers(), *(section(name) for name in TITLES)])}
    for name in TITLES:
        wanted[ROOT / "integrations" / f"gem_{name}" / "README.md"] = block(name)
    return {path: filled(path, part) for path, part in wanted.items()}


def dockerfiles() -> dict[Path, str]:
    """Return the Dockerfile of every trainer, by its path."""
    folder = ROOT / "integrations"
    return {
        folder / f"gem_{name}" / "Dockerfile": dockerfile(name, title)
        for name, title in TITLES.items()
    }


def drivers() -> str:
    """Return what the machine's driver must be, as a table for docs/install.md."""
    rows = [
        f"| {title} | {stack(name).cuda} | {stack(name).driver} or newer |"
        for name, title in TITLES.items()
    ]
    return "\n".join(
        ["| trainer | CUDA of its torch | NVIDIA driver |", "|---|---|---|", *rows, ""]
    )


def filled(path: Path, part: str) -> str:
    """Return the page at ``path`` with ``part`` in its place."""
    text = read(path)
    page, count = PART.subn(lambda found: f"{found[1]}{part}{found[2]}", text)
    if count != 1:
        raise SystemExit(f"{path}: the part gpu occurs {count} times")
    return page


def read(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")


def section(name: str) -> str:
    """Return the lines of a trainer and what is to be known about them, for docs/install.md."""
    notes = "".join(f"- {note}\n" for note in stack(name).notes)
    return f"**{TITLES[name]}**\n\n{block(name)}\n{notes}"


def block(name: str) -> str:
    """Return the lines of a trainer as Markdown."""
    return f"```bash\n{shell_block(name)}\n```\n"


def resolve(name: str) -> int:
    """Resolve the lines of a trainer and write the result; return 1 where they contradict."""
    chosen = stack(name)
    wanted = [*chosen.requirements(), f"gem-core[{name}] @ {ROOT.as_uri()}"]
    command = [sys.executable, "-m", "uv", "pip", "compile", "--no-config", "--no-annotate", "-q"]
    command += [
        "--python-version",
        chosen.python,
        "--python-platform",
        PLATFORM,
        "--no-header",
        "-",
    ]
    done = subprocess.run(command, input="\n".join(wanted), capture_output=True, text=True)
    if done.returncode:
        print(f"{name}: the lines contradict each other, or uv is missing\n{done.stderr}")
        return 1
    pins = [line for line in done.stdout.splitlines() if not line.startswith("gem-core")]
    head = (
        f"# What the GPU lines of {name} resolve to, Python {chosen.python} on Linux (x86-64):\n"
        f"# `scripts/install_lines.py --resolve {name}`. Resolved, not run: no GPU was there.\n"
    )
    RESOLVED.mkdir(exist_ok=True)
    (RESOLVED / f"{name}.txt").write_text(head + "\n".join(pins) + "\n", encoding="utf-8")
    trainer = get_trainer(name)
    watched = {trainer.distribution, *chosen.watched}
    shown = [pin for pin in pins if pin.partition("==")[0] in {n.lower() for n in watched}]
    print(f"{name}: {len(pins)} packages agree: {' '.join(shown)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
