#!/usr/bin/env python3
"""Say which committed results name a commit that is not in the history, or a tree with changes.

``python scripts/result_provenance.py [--list]`` reads every JSON file of ``benchmarks/`` that git
has, and every commit that is named in it, by any key ``commit``. A result is sound if each of them
is an ancestor of HEAD (or HEAD) and has no ``+``, the mark of uncommitted changes. With an offender
the exit status is 1. It is a report: `make lint` does not call it yet.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class NoHistory(Exception):
    """The commits of results cannot be looked up."""


def history(root: Path = ROOT) -> frozenset[str]:
    """Return HEAD and all of its ancestors.

    Raises:
        NoHistory: there is no git, no checkout, or one whose history is cut off.
    """
    try:
        shallow = _git(root, "rev-parse", "--is-shallow-repository").strip()
        if shallow != "false":
            raise NoHistory(f"{root} has a shallow history: git fetch --unshallow brings the rest.")
        return frozenset(_git(root, "rev-list", "HEAD").split())
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoHistory(f"{root} has no history that git can read ({error}).") from None


def result_files(root: Path = ROOT) -> list[Path]:
    """Return the JSON files below ``benchmarks/`` that git has."""
    names = _git(root, "ls-files", "-z", "--", "benchmarks").split("\0")
    return [root / name for name in names if name.endswith(".json")]


def named_commits(data: Any) -> Iterator[str]:
    """Yield every text under a key ``commit``, at any depth.

    >>> list(named_commits({"commit": "ab+", "rows": [{"commit": "cd"}, {"commit": None}]}))
    ['ab+', 'cd']
    """
    if isinstance(data, dict):
        for key, value in data.items():
            if key == "commit" and isinstance(value, str):
                yield value
            else:
                yield from named_commits(value)
    elif isinstance(data, list):
        for value in data:
            yield from named_commits(value)


def fault(commit: str, ancestors: frozenset[str]) -> str | None:
    """Return what is wrong with a commit that a result names; ``None``: nothing.

    A short name is sound if it begins exactly one ancestor.
    """
    if commit.endswith("+"):
        return "uncommitted changes"
    if commit in ancestors:
        return None
    matches = sum(name.startswith(commit) for name in ancestors) if len(commit) >= 7 else 0
    return None if matches == 1 else "not in the history"


def offenders(root: Path = ROOT) -> dict[str, str]:
    """Return path of each unsound result -> its faults, in words.

    Raises:
        NoHistory: the commits cannot be looked up.
    """
    ancestors = history(root)
    found = {}
    for path in result_files(root):
        commits = named_commits(json.loads(path.read_text(encoding="utf-8")))
        faults = {what for commit in commits if (what := fault(commit, ancestors)) is not None}
        if faults:
            found[path.relative_to(root).as_posix()] = " and ".join(sorted(faults))
    return found


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Print the report; return 1 if there is an offender, 2 if the history cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print every unsound file")
    arguments = parser.parse_args()
    try:
        found = offenders()
    except NoHistory as error:
        print(f"result_provenance: {error}", file=sys.stderr)
        return 2
    if arguments.list:
        for name, faults in found.items():
            print(f"{name}: {faults}")
    counts: dict[str, int] = {}
    for name, faults in found.items():
        key = f"{'/'.join(name.split('/')[:2])}: {faults}"
        counts[key] = counts.get(key, 0) + 1
    for key, count in sorted(counts.items()):
        print(f"{count:5} {key}")
    print(f"{len(found)} of {len(result_files())} JSON files name an unsound commit")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
