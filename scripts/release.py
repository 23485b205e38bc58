#!/usr/bin/env python3
"""Whether the checkout is one release, and the addresses that its metadata name.

    python scripts/release.py                 # write what follows from REPOSITORY
    python scripts/release.py --check         # the version is the same everywhere, that is written
    python scripts/release.py --tag v0.1.0    # the tag is that version, and the changelog has it

docs/release.md has the whole process.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = ""
"""Public address of the repository, without a final slash; "" as long as there is none."""
PART = re.compile(r"(# urls: scripts/release\.py\n).*?(# /urls\n)", flags=re.DOTALL)
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?!https?:|mailto:|#)([^)\s]+\))")
CODE = re.compile(r"^repository-code: .*\n", flags=re.MULTILINE)
VERSIONS = {
    "pyproject.toml": r'^version = "([^"]+)"$',
    "gem_core/__init__.py": r'^__version__ = "([^"]+)"$',
    "CITATION.cff": r"^version: (\S+)$",
}
"""File -> the expression of the version in it."""


def main() -> int:
    """Write the addresses, or check the release; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--tag", help="the tag of the release, v and the version")
    options = parser.parse_args()
    wrong = problems(ROOT, options.tag)
    for path, text in addressed(ROOT, REPOSITORY).items():
        if not options.check and options.tag is None:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            wrong.append(f"{path.name} has no or other addresses: run python scripts/release.py")
    print("\n".join(wrong) or f"version {versions(ROOT)['pyproject.toml']}: nothing to correct")
    return int(bool(wrong))


def addressed(root: Path, repository: str) -> dict[Path, str]:
    """Return the three files that name the address of the repository, as they should be."""
    changes = {
        "pyproject.toml": with_urls,
        "CITATION.cff": with_code,
        "README.md": with_absolute_links,
    }
    paths = {root / name: change for name, change in changes.items()}
    return {
        path: change(path.read_text(encoding="utf-8"), repository) for path, change in paths.items()
    }


def with_code(text: str, repository: str) -> str:
    """Return CITATION.cff with the address of ``repository``, without one where it is ""."""
    line = f"repository-code: {repository}\n" if repository else ""
    return CODE.sub("", text) + line


def with_absolute_links(text: str, repository: str) -> str:
    """Return README.md with links that lead somewhere on the package index, too.

    Without an address the links stay relative; an absolute one is not changed back.

    >>> with_absolute_links("![x](a.png) [y](b.md#c) [z](#d)", "https://a.example")
    '![x](https://a.example/raw/main/a.png) [y](https://a.example/blob/main/b.md#c) [z](#d)'
    """
    if not repository:
        return text
    return LINK.sub(
        lambda found: (
            f"{found[1]}{repository}/{'raw' if found[1][0] == '!' else 'blob'}/main/{found[2]}"
        ),
        text,
    )


def with_urls(text: str, repository: str) -> str:
    """Return pyproject.toml with the addresses of ``repository``; with none where it is "".

    >>> print(with_urls("# urls: scripts/release.py\\n# /urls\\n", "https://a.example/x"))
    # urls: scripts/release.py
    [project.urls]
    Source = "https://a.example/x"
    Changelog = "https://a.example/x/blob/main/CHANGELOG.md"
    Issues = "https://a.example/x/issues"
    # /urls
    <BLANKLINE>
    """
    table = ""
    if repository:
        table = (
            f'[project.urls]\nSource = "{repository}"\n'
            f'Changelog = "{repository}/blob/main/CHANGELOG.md"\nIssues = "{repository}/issues"\n'
        )
    page, count = PART.subn(lambda found: f"{found[1]}{table}{found[2]}", text)
    if count != 1:
        raise SystemExit(f"pyproject.toml: the part urls occurs {count} times")
    return page


def versions(root: Path) -> dict[str, str]:
    """Return the version that each file names; "" where it names none."""
    found = {
        name: re.search(pattern, (root / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
        for name, pattern in VERSIONS.items()
    }
    return {name: match[1] if match else "" for name, match in found.items()}


def problems(root: Path, tag: str | None = None) -> list[str]:
    """Return what keeps the checkout from being one release, a line each."""
    named = versions(root)
    version = named["pyproject.toml"]
    wrong = [
        f"{name} has version {other or 'none'}, pyproject.toml has {version}: make them the same"
        for name, other in named.items()
        if other != version
    ]
    if tag is None:
        return wrong
    if tag != f"v{version}":
        wrong.append(f"the tag is {tag}, the version {version}: the tag must be v{version}")
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        wrong.append(f"CHANGELOG.md has no section '## {version} - YYYY-MM-DD': rename Unreleased")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
