#!/usr/bin/env python3
"""What moved in the trainers that the adapters use: ``python scripts/drift.py [TRAINER ...]``.

Compares the pinned release of each trainer with its newest on the package index, and names what is
gone or changed and the line of the adapter that uses it. pip downloads the wheels; nothing is
installed, and no code of a trainer runs. The exit status is 1 where something is gone or changed,
and 2 where the adapter uses something that the pinned release does not seem to have: the radar
would be blind there (see ``drift_radar/by_hand.py``).

``--against 1.15.0`` compares with that release, an older one, too. ``--write`` writes
``docs/works_with.md``. It needs griffelib and PyYAML (``python scripts/make_env.py core``).
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from drift_radar.compare import Report, compare
from drift_radar.page import Checked, page
from drift_radar.release import Release, download
from drift_radar.seams import Adapter

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "works_with.md"
TRAINERS = ("verl", "openrlhf", "trl", "oat", "rl2")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the releases, print what moved, return the exit status."""
    parser = argparse.ArgumentParser(description="What moved in the trainers that adapters use.")
    parser.add_argument("trainers", nargs="*", metavar="TRAINER", help="default: all five")
    parser.add_argument("--against", metavar="VERSION", help="instead of the newest release")
    parser.add_argument("--pre", action="store_true", help="pre-releases count as releases")
    parser.add_argument("--write", action="store_true", help="write docs/works_with.md")
    options = parser.parse_args(arguments)
    names = options.trainers or TRAINERS
    if not set(names) <= set(TRAINERS):
        parser.error(f"a trainer is one of {', '.join(TRAINERS)}")
    if options.write and (options.trainers or options.against):
        parser.error("the page has all trainers and their newest releases: leave the rest out")
    checked = [check(name, options.against, options.pre) for name in names]
    if options.write:
        PAGE.write_text(page(checked, datetime.date.today().isoformat()), encoding="utf-8")
    blind = any(one.report.lost for one in checked)
    return 2 if blind else int(any(one.report.drift for one in checked))


def check(trainer: str, against: str | None = None, pre: bool = False) -> Checked:
    """Compare one trainer's pinned release with another, and print what moved.

    Args:
        trainer: its name in gem-core.
        against: a version; None = the newest.
        pre: pre-releases count.
    """
    distribution = import_module(f"gem_{trainer}").TRAINER.distribution
    pinned = pinned_version(trainer, distribution)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted = f"{distribution}=={against}" if against else distribution
        old = Release(download(f"{distribution}=={pinned}", folder / "old"), folder / "a")
        file = download(wanted, folder / "new", pre)
        same = file.name.split("-")[1] == old.version
        new = old if same else Release(file, folder / "b")
        report = compare(trainer, Adapter(trainer).seams(packages(old)), old, new)
    tell(distribution, old.version, new.version, report)
    return Checked(distribution, old.version, new.version, report)


def pinned_version(trainer: str, distribution: str) -> str:
    """Return the version under test."""
    text = (ROOT / "constraints" / f"{trainer}.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{re.escape(distribution)}==(\S+)", text, re.MULTILINE | re.IGNORECASE)
    if found is None:
        raise SystemExit(f"constraints/{trainer}.txt has no version of {distribution}: lock it")
    return found[1]


def packages(release: Release) -> frozenset[str]:
    """Return the names that a release can be imported by."""
    files = [file for root in release.roots for file in root.glob("*/__init__.py")]
    return frozenset(file.parent.name for file in files) - {"tests", "scripts", "examples"}


def tell(distribution: str, old: str, new: str, report: Report) -> None:
    """Print the comparison of one trainer."""
    drift = len(report.drift)
    verdict = f"{drift} gone or changed" if drift else "no drift"
    print(f"{distribution} {old} -> {new}: {report.followed} uses compared, {verdict}")
    for finding in report.findings:
        print(f"  {finding.line()}")
    for seam in report.lost:
        places = ", ".join(seam.places)
        print(f"  not found in {old}: {seam.path} ({places}); see scripts/drift_radar/by_hand.py")


if __name__ == "__main__":
    sys.exit(main())
