"""The commit that results come from.

A commit names the code of a result only if nothing was changed after it. What counts are the
`SOURCES`: results and pages that a benchmark writes while it runs do not make a checkout dirty.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from gem_core.errors import RunError

CHECKOUT = Path(__file__).resolve().parents[2]
"""gem-core's checkout, where gem-core is used from one."""
SOURCES = (
    "gem_core",
    "integrations",
    "recipes",
    "benchmarks",
    "examples",
    "scripts",
    "constraints",
    "pyproject.toml",
    ":(exclude,glob)benchmarks/**/results/**",
    ":(exclude,glob)benchmarks/**/*.json",
    ":(exclude,glob)benchmarks/**/*.jsonl",
    ":(exclude,glob)benchmarks/**/*.md",
    ":(exclude,glob)benchmarks/**/*.png",
)
"""What a result depends on, as git's pathspecs."""
_SHOWN = 5


def commit(checkout: Path = CHECKOUT) -> str | None:
    """Return the commit of a checkout, with ``+`` if there are uncommitted changes.

    Returns:
        ``None`` where git knows none, as for an installed package, whose version is recorded.
    """
    head = _git(checkout, "rev-parse", "HEAD").strip()
    return head + ("+" if changes(checkout) else "") if head else None


def changes(checkout: Path = CHECKOUT) -> list[str]:
    """Return git's lines about uncommitted changes of the `SOURCES`, new files included."""
    here = [path for path in SOURCES if path.startswith(":") or (checkout / path).exists()]
    if all(path.startswith(":") for path in here):
        return []  # without a path git would list everything
    return _git(checkout, "status", "--porcelain", "--", *here).splitlines()


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--allow-dirty`` to a program that makes results; `check_option` reads it."""
    parser.add_argument(
        "--allow-dirty",
        action="store_true",
        help="also with uncommitted changes; the results are marked with a + behind the commit",
    )


def check_option(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """End the program if there are uncommitted changes and ``--allow-dirty`` is not given."""
    try:
        require_clean(arguments.allow_dirty)
    except RunError as error:
        parser.error(str(error))


def require_clean(allow_dirty: bool = False, checkout: Path = CHECKOUT) -> None:
    """Refuse to make results that no commit would name; ``allow_dirty`` makes them nevertheless.

    Raises:
        RunError: there are uncommitted changes.
    """
    changed = changes(checkout)
    if not changed or allow_dirty:
        return
    names = ", ".join(line[3:] for line in changed[:_SHOWN])
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    raise RunError(
        f"Uncommitted changes in {names}{more}: the results would be of no commit. Commit them "
        "first, or use --allow-dirty, which marks the results."
    )


def origins(commits: Iterable[str | None]) -> str:
    """Say from which commits results come, and how many of them are from dirty checkouts.

    >>> origins(["0123456789ab", "0123456789ab", "fedcba987654+", None])
    '0123456789 (2), fedcba9876+ (1), no commit (1); 1 of 4 with uncommitted changes (+)'
    """
    counts: dict[str, int] = {}
    dirty = 0
    for name in commits:
        dirty += is_dirty(name)
        text = short(name)
        counts[text] = counts.get(text, 0) + 1
    total = sum(counts.values())
    listed = ", ".join(f"{text} ({count})" for text, count in counts.items())
    marked = f"{dirty} of {total} with uncommitted changes (+)" if dirty else "none is dirty"
    return f"{listed}; {marked}"


def short(name: str | None) -> str:
    """Return ten digits of a commit, and the ``+`` of a dirty one."""
    if name is None:
        return "no commit"
    return name[:10] + ("+" if is_dirty(name) else "")


def is_dirty(name: str | None) -> bool:
    """Return whether a result's commit is that of a dirty checkout."""
    return name is not None and name.endswith("+")


def _git(checkout: Path, *arguments: str) -> str:
    """Return git's output, nothing where there is no checkout or no git."""
    if not (checkout / ".git").exists() or shutil.which("git") is None:
        return ""
    done = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""
