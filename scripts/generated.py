"""The command line of a script that writes one file: without options, or with ``--check``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def write_or_check(target: Path, text: str, about: str | None) -> int:
    """Write a file, or with ``--check`` tell whether it is up to date; return the exit status."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    if not parser.parse_args().check:
        target.write_text(text, encoding="utf-8")
        return 0
    if target.exists() and target.read_text(encoding="utf-8") == text:
        return 0
    script = Path(sys.argv[0]).name
    print(f"{target} is out of date: run `python scripts/{script}`.", file=sys.stderr)
    return 1
