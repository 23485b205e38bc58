#!/usr/bin/env python3
"""Check the built site: ``python scripts/check_site.py [FOLDER]``.

Every link inside the site leads to a file and to a part that it has, and no page loads a script, a
style or a picture from another machine. Links to other sites are not followed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
"""Tag -> the attribute whose address a browser loads by itself."""


class Page(HTMLParser):
    """The names, links and loaded addresses of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record what a tag names or refers to."""
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag in LOADED and LOADED[tag] in given and given.get("rel") != "canonical":
            self.loaded.append(given[LOADED[tag]])
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])


@cache
def read(path: Path) -> Page:
    """Return a page, parsed once."""
    return Page(path.read_text(encoding="utf-8"))


def problems(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the pages of a site, a line each."""
    for path in sorted(folder.rglob("*.html")):
        if path.name == "404.html":
            continue  # its addresses are from the root of wherever the site is
        page = read(path)
        shown = path.relative_to(folder)
        for address in page.loaded:
            if urlsplit(address).netloc:
                yield f"{shown} loads {address} from another machine: ship it with the site"
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{shown}: {address} is no file of the site"
            elif target.suffix == ".html" and unquote(parts.fragment) not in read(target).names:
                yield f"{shown}: {address} is no part of that page"


def main() -> int:
    """Check the site; return the exit status."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    pages = len([*folder.rglob("*.html")])
    wrong = [*problems(folder)] if pages else [f"{folder} has no page: run make docs"]
    print("\n".join(wrong) or f"check_site: {pages} pages, every link inside leads somewhere")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
