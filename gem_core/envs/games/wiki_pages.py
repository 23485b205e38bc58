"""Articles and their links, from a text file or from a MediaWiki server."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random
    from typing import Any, Protocol

    class Wiki(Protocol):
        """A source of articles."""

        def draw(self, rng: Random) -> str:
            """Return a random title."""

        def page(self, title: str) -> Page | None:
            """Return an article, or ``None`` if there is none with this title."""


_LINK = re.compile(r"\[\[([^]|]+)(?:\|([^]]+))?\]\]")
SAMPLE = Path(__file__).parents[1] / "data" / "wiki_sample.txt"


class Page(NamedTuple):
    """An article.

    Attributes:
        title: its title.
        text: its first sentences, without the markup of links.
        links: the titles that it links to, each once, without its own.
    """

    title: str
    text: str
    links: tuple[str, ...]


class FileWiki:
    """Articles of a text file in UTF-8, one line each: ``Title | Text with [[links]].``

    ``[[Title|words]]`` shows the words instead of the title.

    Raises:
        ValueError: a line is malformed, or a link leads nowhere.
    """

    def __init__(self, path: Path):
        self.pages: dict[str, Page] = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            title, bar, text = line.partition(" | ")
            if not bar:
                raise ValueError(f"{path}:{number}: write 'Title | Text with [[links]].'")
            links = dict.fromkeys(m[1] for m in _LINK.finditer(text) if m[1] != title)
            shown = _LINK.sub(lambda m: m[2] or m[1], text)
            self.pages[title] = Page(title, shown, tuple(links))
        self.titles = tuple(self.pages)
        for page in self.pages.values():
            for link in page.links:
                if link not in self.pages:
                    raise ValueError(f"{path}: {page.title!r} links to {link!r}, which is missing.")

    def draw(self, rng: Random) -> str:
        """Return a random title."""
        return self.titles[int(rng.random() * len(self.titles))]

    def page(self, title: str) -> Page | None:
        """Return an article, or ``None`` if there is none with this title."""
        return self.pages.get(title)


@cache
def file_wiki(path: str | None) -> FileWiki:
    """Return the articles of a file (``None``: the sample), which is read once and shared."""
    return FileWiki(SAMPLE if path is None else Path(path))


class MediaWiki:
    """The articles of a MediaWiki server, through its ``api.php``.

    Args:
        url: the address of ``api.php``.
        timeout: seconds to wait for an answer.
    """

    def __init__(self, url: str, timeout: float = 20.0):
        self.url = url
        self.timeout = timeout

    def draw(self, rng: Random) -> str:
        """Return the first title after random letters, which depend on ``rng``.

        Raises:
            OSError: the server cannot be reached.
        """
        while True:
            start = "".join(chr(65 + int(rng.random() * 26)) for _ in range(3)).capitalize()
            pages = self._query(
                list="allpages", apfrom=start, apfilterredir="nonredirects", aplimit="1"
            )["allpages"]
            if pages:
                return str(pages[0]["title"])

    def page(self, title: str) -> Page | None:
        """Return an article with up to 500 links, or ``None`` if there is none with this title.

        Raises:
            OSError: the server cannot be reached.
        """
        query = self._query(
            titles=title,
            redirects="1",
            prop="links|extracts",
            plnamespace="0",
            pllimit="500",
            exintro="1",
            explaintext="1",
            exchars="500",
        )
        article = next(iter(query["pages"].values()))
        if "missing" in article or "invalid" in article:
            return None
        name = str(article["title"])
        links = tuple(str(link["title"]) for link in article.get("links", ()))
        text = str(article.get("extract", "")).strip()
        return Page(name, text, tuple(link for link in links if link != name))

    def _query(self, **parameters: str) -> dict[str, Any]:
        import json
        from urllib.parse import urlencode
        from urllib.request import Request, urlopen

        query = urlencode({"action": "query", "format": "json", **parameters})
        request = Request(f"{self.url}?{query}", headers={"User-Agent": "gem-core WikiGame"})
        with urlopen(request, timeout=self.timeout) as answer:
            data: dict[str, Any] = json.load(answer)
        if "query" not in data:
            raise OSError(f"{self.url} did not answer as a MediaWiki api.php: {data!s:.200}")
        return dict(data["query"])
