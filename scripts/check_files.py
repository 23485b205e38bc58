#!/usr/bin/env python3
"""Check all files: size, final newline, line ends, merge markers, and words of plain English.

``python scripts/check_files.py [FILE ...]``; without files, the whole checkout.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Set
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES = 1_000_000
SKIPPED = {"build", "dist", "outputs", "__pycache__"}  # what .gitignore names
SKIPPED_AT_THE_ROOT = {"runs"}
HIDDEN_BUT_OURS = {".ci", ".github"}
TEXTS = {".py", ".md", ".toml", ".js"}
DATA = re.compile(
    r"CHANGELOG\.md|benchmarks/\w+/results/.*|gem_core/envs/data/.*"
    r"|scripts/check_files\.py|tests/tools/test_check_files\.py"
)
"""Old entries, results and samples keep their words, and so do the list below and its test."""
WORDS = {
    r"mend(s|ed|ing)?": "fix",
    r"learnt": "learned",
    r"nobody has read": "untrusted",
    r"(is|are|was|were) here": "exists, is installed, is listed",
    r"(runs|trainers|curves|tokens|episodes|they) part(ed)?": "differ",
    r"Ray's books": "Ray's resources",
    r"makes? money of": "compute the cost of",
    r"states? a machine": "describe a machine",
    r"which is one curve": "the curves coincide",
    r"what this would have shown": "how sensitive this is",
}
"""What plain English says in another way: a regular expression of whole words -> a suggestion."""
MERGE_MARKERS = tuple(mark * 7 + b" " for mark in (b"<", b">"))


def problems(file: Path) -> Iterator[str]:
    """Yield the problems of one file."""
    body = file.read_bytes()
    if len(body) > MAX_BYTES:
        yield f"is {len(body):,} bytes, more than {MAX_BYTES:,}"
    if not body or b"\0" in body:
        return  # empty or binary
    if not body.endswith(b"\n"):
        yield "does not end with a newline"
    if body.endswith(b"\n\n"):
        yield "ends with an empty line"
    if b"\r\n" in body:
        yield "has CRLF line ends"
    if any(line.startswith(MERGE_MARKERS) for line in body.split(b"\n")):
        yield "has a merge marker"


def word_problems(file: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield what `WORDS` replaces in one text, line by line. Data are left out."""
    path = file.resolve()
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else file.name
    if file.suffix not in TEXTS or DATA.fullmatch(name):
        return
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        for pattern, suggestion in WORDS.items():
            for found in re.finditer(rf"\b(?:{pattern})\b", line, flags=re.IGNORECASE):
                yield f"line {number} has {found[0]!r}; plainer: {suggestion}"


def checkout_files(
    folder: Path = ROOT, skipped: Set[str] = SKIPPED | SKIPPED_AT_THE_ROOT
) -> Iterator[Path]:
    """Yield the files of a checkout, without the folders ``skipped`` and what git ignores."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            hidden = entry.name.startswith(".") and entry.name not in HIDDEN_BUT_OURS
            if not hidden and entry.name not in skipped:
                yield from checkout_files(entry, SKIPPED)
        elif entry.is_file() and entry.suffix != ".pyc" and entry.name != ".git":
            yield entry


def main(arguments: list[str]) -> int:
    """Print every problem; return 1 if there is one."""
    files = [Path(argument) for argument in arguments] or list(checkout_files())
    lines = [
        f"{file}: {problem}"
        for file in files
        for problem in (*problems(file), *word_problems(file))
    ]
    print("\n".join(lines) if lines else f"{len(files)} files have no problems")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
