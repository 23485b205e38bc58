#!/usr/bin/env python3
"""Collect the pages of the site in ``build/site-pages``: ``python scripts/stage_site.py``.

The site has the pages of ``docs/``, and those elsewhere that they refer to (`PLACES`). A link to a
page of the site becomes a link inside it. A link to another file of the repository becomes one to
its public address (``scripts/release.py``), or, as long as there is none, the path as text. What
``zensical.toml`` then builds is ``build/site``. An error names the page and the link.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import release
import tomllib

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "build" / "site-pages"
CONFIG = ROOT / "zensical.toml"
PLACES = (
    ("README.md", "index.md"),
    ("CONTRIBUTING.md", "contributing.md"),
    ("CODE_OF_CONDUCT.md", "code_of_conduct.md"),
    ("SECURITY.md", "security.md"),
    ("CHANGELOG.md", "changelog.md"),
    ("integrations/gem_*/README.md", "train/{name}.md"),
    ("examples/README.md", "examples/README.md"),
    ("examples/*/README.md", "examples/{name}.md"),
    ("benchmarks/*/README.md", "measured/{name}.md"),
    ("benchmarks/throughput/*.md", "measured/throughput_{stem}.md"),
    ("docs/**/*.md", "{inside}"),
)
"""Pattern of source files -> their place in the site; the first pattern that a file matches."""
FENCE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`(?!\]))", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(((?!https?:|mailto:|#)[^)\s]+)\)")


def main() -> int:
    """Write the pages and their pictures; return the exit status."""
    shutil.rmtree(TARGET, ignore_errors=True)
    pages = places()
    check_navigation(set(pages.values()))
    for source, place in pages.items():
        target = TARGET / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(staged(source, pages), encoding="utf-8")
        for picture in pictures(source):
            copy = target.parent / picture_place(source, picture, pages)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(picture, copy)
    shutil.copytree(ROOT / "docs" / "site", TARGET / "site")
    print(f"stage_site: {len(pages)} pages in {TARGET.relative_to(ROOT)}")
    return 0


def places() -> dict[Path, str]:
    """Return source file -> path in the site."""
    found: dict[Path, str] = {}
    for pattern, place in PLACES:
        for file in sorted(ROOT.glob(pattern)):
            inside = file.relative_to(ROOT / "docs").as_posix() if "docs" in pattern else ""
            name = file.parent.name.removeprefix("gem_")
            found.setdefault(file, place.format(name=name, stem=file.stem, inside=inside))
    twice = sorted(place for place in found.values() if [*found.values()].count(place) > 1)
    if twice:
        raise SystemExit(f"stage_site: two pages have one place: {', '.join(twice)}")
    return found


def check_navigation(pages: set[str]) -> None:
    """Compare the navigation with the pages: each is in it once, and no other."""
    listed = [*in_navigation(tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"])]
    wrong = [f"{page} is not in it" for page in sorted(pages - {*listed})]
    wrong += [f"{page} does not exist" for page in sorted({*listed} - pages)]
    wrong += [f"{page} is in it twice" for page in sorted(pages) if listed.count(page) > 1]
    if wrong:
        raise SystemExit(f"stage_site: navigation of {CONFIG.name}: {'; '.join(wrong)}")


def in_navigation(entry: Any) -> Iterator[str]:
    """Yield the pages of the navigation: texts, in lists and under titles."""
    if isinstance(entry, str):
        yield entry
        return
    for part in entry.values() if isinstance(entry, dict) else entry:
        yield from in_navigation(part)


def staged(source: Path, pages: dict[Path, str]) -> str:
    """Return the text of a page with the links that it has in the site; code is left as it is."""
    parts = FENCE.split(source.read_text(encoding="utf-8"))
    for i in range(0, len(parts), 2):
        parts[i] = LINK.sub(lambda found: link(found, source, pages), parts[i])
    return "".join(parts)


def link(found: re.Match[str], source: Path, pages: dict[Path, str]) -> str:
    """Return one link as it is in the site."""
    mark, text, address = found.groups()
    path, _, part = address.partition("#")
    target = (source.parent / path).resolve()
    anchor = f"#{part}" if part else ""
    if mark:
        return f"![{text}]({picture_place(source, target, pages)})"
    if (target / "README.md") in pages:
        target /= "README.md"
    if target in pages:
        return f"[{text}]({relative(pages[target], pages[source])}{anchor})"
    if not target.exists():
        raise SystemExit(f"stage_site: {source.relative_to(ROOT)}: {address} does not exist")
    inside = target.relative_to(ROOT).as_posix()
    if release.REPOSITORY:
        return f"[{text}]({release.REPOSITORY}/blob/main/{inside}{anchor})"
    return text if inside.endswith(text.strip("`")) else f"{text} (`{inside}`)"


def pictures(source: Path) -> Iterator[Path]:
    """Yield the pictures that a page shows."""
    for mark, _, address in LINK.findall(source.read_text(encoding="utf-8")):
        if mark:
            yield (source.parent / address).resolve()


def picture_place(source: Path, picture: Path, pages: dict[Path, str]) -> str:
    """Return where a page's picture is, from the page: all are in one folder, by their path."""
    if not picture.is_file():
        raise SystemExit(f"stage_site: {source.relative_to(ROOT)}: no picture {picture}")
    name = picture.relative_to(ROOT).as_posix().replace("/", "-")
    return relative(f"pictures/{name}", pages[source])


def relative(place: str, page: str) -> str:
    """Return the way from a page to a file of the site.

    >>> relative("write/README.md", "train/trl.md")
    '../write/README.md'
    """
    return Path(os.path.relpath(place, Path(page).parent)).as_posix()


if __name__ == "__main__":
    sys.exit(main())
