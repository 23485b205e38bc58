#!/usr/bin/env python3
"""Check that every committed result names a commit of the history, without uncommitted changes.

``python scripts/result_provenance.py`` reads every JSON file of ``benchmarks/`` that git has, and
every commit that is named in it, by any key ``commit``. A result is sound if there is one, in the
file or in those of the same run, and if each of them is an ancestor of HEAD (or HEAD) and has no
``+``, the mark of uncommitted changes.

Without the whole history nothing can be checked: in an exported tree, in a shallow clone, or where
the commits were made anew, so that many are named and none is there. It says so and passes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
INPUTS = ("recipe.json", "refusals.json")
"""Files that no program measured."""
OF_RUN = "run.json"
"""Names the commit of all files of its folder."""
_SHOWN = 10
_MANY = 20
"""Commits named by results of which at least one is in the history that they were made in."""


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
        said = str(getattr(error, "stderr", None) or error).strip()
        raise NoHistory(f"{root} has no history that git can read ({said}).") from None


def result_files(root: Path = ROOT) -> list[Path]:
    """Return the JSON files below ``benchmarks/`` that git has, and that are there."""
    names = _git(root, "ls-files", "-z", "--", "benchmarks").split("\0")
    files = [root / name for name in names if name.endswith(".json")]
    return [file for file in files if file.exists()]


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
    found, named = {}, set()
    for path in result_files(root):
        commits = set(named_commits(json.loads(path.read_text(encoding="utf-8"))))
        named |= commits
        faults = {what for commit in commits if (what := fault(commit, ancestors)) is not None}
        if not commits and path.name not in INPUTS and not path.with_name(OF_RUN).exists():
            faults = {"no commit"}
        if faults:
            found[path.relative_to(root).as_posix()] = " and ".join(sorted(faults))
    if len(named) >= _MANY and all(fault(commit, ancestors) for commit in named):
        raise NoHistory(f"none of the {len(named)} commits that results name is in the history.")
    return found


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Check; return 1 if a result is not sound."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args(arguments)
    try:
        found = offenders(root)
    except NoHistory as error:
        print(f"result_provenance: nothing was checked: {error}", file=sys.stderr)
        return 0
    for name, faults in [*found.items()][:_SHOWN]:
        advice = "Make it again from a commit, or remove it."
        print(f"result_provenance: {name}: {faults}. {advice}", file=sys.stderr)
    if len(found) > _SHOWN:
        print(f"result_provenance: and {len(found) - _SHOWN} more", file=sys.stderr)
    print(f"{len(result_files(root))} JSON files of results, {len(found)} unsound")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
