"""Search engines of the web, with the user's own keys."""

from __future__ import annotations

import os
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

from gem_core.errors import GemError
from gem_core.tools.search.documents import Document, SearchError
from gem_core.tools.search.requests import ask_json


class _Service(NamedTuple):
    """How a service is asked.

    Attributes:
        url: its address.
        keys: parameter -> the environment variable that has it.
        fixed: parameters that are always the same.
        results: the name of the results in its answer.
    """

    url: str
    keys: Mapping[str, str]
    fixed: Mapping[str, str]
    results: str


SERVICES = {
    "serpapi": _Service(
        "https://serpapi.com/search.json",
        {"api_key": "SERPAPI_API_KEY"},
        {"engine": "google"},
        "organic_results",
    ),
    "google": _Service(
        "https://www.googleapis.com/customsearch/v1",
        {"key": "GOOGLE_API_KEY", "cx": "GOOGLE_CSE_ID"},
        {},
        "items",
    ),
}
"""The services by the option ``engine`` of the tool."""


class WebSearch:
    """Asks a search engine of the web.

    Args:
        engine: a key of `SERVICES`.
        url: another address, such as that of a proxy; ``None``: the service's own.
        retries: further attempts of a request that failed.

    Raises:
        GemError: an environment variable with a key is not set.
    """

    def __init__(self, engine: str, url: str | None = None, *, retries: int = 2):
        self._service = SERVICES[engine]
        missing = [name for name in self._service.keys.values() if not os.environ.get(name)]
        if missing:
            raise GemError(
                f"The search engine {engine!r} needs the environment variables "
                f"{' and '.join(missing)}: set them to your own keys."
            )
        self._url = url or self._service.url
        self._retries = retries

    def search(self, query: str, topk: int, seconds: float) -> list[Document]:
        """Return the titles and extracts of the best pages.

        Raises:
            SearchError: the service does not answer in time, or not with results.
        """
        keys = {name: os.environ[variable] for name, variable in self._service.keys.items()}
        parameters = {**self._service.fixed, **keys, "q": query, "num": str(topk)}
        request = urllib.request.Request(f"{self._url}?{urllib.parse.urlencode(parameters)}")
        answer = ask_json(request, time.monotonic() + seconds, self._retries, proxies=True)
        if not isinstance(answer, dict):
            raise SearchError("bad_response", "the service's answer is not a JSON object")
        return [_page(row) for row in (answer.get(self._service.results) or [])[:topk]]


def _page(row: Any) -> Document:
    if not isinstance(row, dict):
        raise SearchError("bad_response", "the service's results are not pages")
    return Document(str(row.get("title") or ""), str(row.get("snippet") or ""))
