"""The search tool."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from gem_core.errors import unknown
from gem_core.tools.base import Call, Tool, ToolResult
from gem_core.tools.search.dense import (
    POOLINGS,
    Encoder,
    Pooling,
    dense_search,
    require_transformers,
)
from gem_core.tools.search.documents import Document, SearchError, format_documents
from gem_core.tools.search.local import local_search, require_bm25s, revision_of
from gem_core.tools.search.server import ServerSearch
from gem_core.tools.search.web import SERVICES, WebSearch

_SHIPPED = "almanac"
_MOST_CHARS = 2000


class Search(Protocol):
    """Something that can be searched; it may be asked by many threads at once."""

    def search(self, query: str, topk: int, seconds: float) -> list[Document]:
        """Return at most ``topk`` documents, the best first, within ``seconds``.

        Raises:
            SearchError: it failed.
        """


class SearchTool(Tool):
    """Searches a corpus and returns the best paragraphs.

    Args:
        corpus: a ``.jsonl`` file, or the name of a shipped one, ``almanac`` or ``ledger``;
            ``None``: ``almanac``. Searched by BM25 (extra ``search``), or with ``encoder`` by
            vectors.
        encoder: an encoder of transformers (extra ``hf``), a local directory or a Hugging Face id.
        encoder_revision: commit, tag or branch of a Hugging Face id.
        pooling: what stands for a text: ``"mean"`` of its tokens, the first (``"cls"``) or the
            ``"last"``.
        query_prefix: put before queries, as the encoder was trained.
        text_prefix: put before the texts of the corpus.
        url: a retrieval server that is asked instead, see `gem_core.tools.search.server`.
        engine: ``"serpapi"`` or ``"google"``: the web, with the keys of the environment variables
            ``SERPAPI_API_KEY``, or ``GOOGLE_API_KEY`` and ``GOOGLE_CSE_ID``. ``url`` is then the
            service's address, if it is another one.
        topk: paragraphs in a result.
        seconds: wall seconds of a call, all attempts together.
        retries: further attempts of a request that failed.
        remembered: answers that the process keeps; 0: none.
        formats: the formats of calls; ``tag`` and ``tool_call`` by default.

    Raises:
        DataError: the corpus cannot be read.
        GemError: a key of a search engine is not set.
        MissingDependencyError: what searches is not installed.
        ValueError: the options contradict each other.
    """

    name = "search"
    description = "Searches a collection of texts for words and returns the best paragraphs."
    schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "the words to search for"}},
        "required": ["query"],
    }
    tag = "search"
    result_tag = "information"
    known_formats: ClassVar[tuple[str, ...]] = ("tag", "tool_call")

    def __init__(
        self,
        *,
        corpus: str | None = None,
        url: str | None = None,
        engine: str | None = None,
        encoder: str | None = None,
        encoder_revision: str | None = None,
        pooling: Pooling = "mean",
        query_prefix: str = "",
        text_prefix: str = "",
        topk: int = 3,
        seconds: float = 10.0,
        retries: int = 2,
        remembered: int = 10_000,
        formats: tuple[str, ...] | None = None,
    ):
        super().__init__(formats)
        if engine is not None and engine not in SERVICES:
            raise unknown("engine", engine, SERVICES, f"There are {', '.join(SERVICES)}.")
        if corpus is not None and (url is not None or engine is not None):
            raise ValueError("corpus is searched here, url and engine elsewhere: give one of them")
        if pooling not in POOLINGS:
            raise unknown("pooling", pooling, POOLINGS, f"There are {', '.join(POOLINGS)}.")
        if encoder is not None and (url is not None or engine is not None):
            raise ValueError("encoder searches a corpus here: leave url and engine out")
        if encoder is None and (encoder_revision or query_prefix or text_prefix):
            raise ValueError("encoder_revision and the prefixes go with encoder")
        if topk < 1 or seconds <= 0 or retries < 0 or remembered < 0:
            raise ValueError("topk and seconds must be positive, retries and remembered at least 0")
        self.topk = topk
        self.seconds = seconds
        self._where = engine or ("corpus" if url is None else "server")
        self._place = corpus or _SHIPPED if self._where == "corpus" else url
        self._retries = retries
        self._encoder = (
            Encoder(encoder, encoder_revision, pooling, query_prefix, text_prefix)
            if encoder
            else None
        )
        self._memory = _share(
            _memories, (self._source, topk, remembered), lambda: _Memory(remembered)
        )
        if self._where == "corpus":
            require_transformers() if encoder else require_bm25s()
            self.revision = revision_of(str(self._place))
            # A shipped corpus is indexed in milliseconds, and nothing is waited for.
            self.slow = str(self._place).endswith(".jsonl") or encoder is not None
        else:
            self._search()  # for the keys

    @property
    def _source(self) -> tuple[Any, ...]:
        return self._where, self._place, self._encoder

    def describe(self) -> dict[str, Any]:
        """Return what is searched; the revision says which corpus."""
        place = {"url": self._place} if self._where == "server" else {}
        dense = {"encoder": list(self._encoder)} if self._encoder else {}
        return {"searches": self._where, **place, **dense}

    def start(self) -> None:
        """Build the index, or get the connection, of the process."""
        self._search()

    def run(self, call: Call, session: Any, seconds: float) -> ToolResult:
        """Search; see `Tool.run`."""
        query = str(call.arguments["query"]).strip()[:_MOST_CHARS]
        query = query.encode(errors="replace").decode()
        began = time.monotonic()
        documents = self._memory.get(query)
        cached = documents is not None
        if documents is None:
            try:
                documents = self._search().search(query, self.topk, min(seconds, self.seconds))
            except SearchError as error:
                text = f"[The search failed: {error}.]"
                return ToolResult(text, error.kind, time.monotonic() - began)
            self._memory.put(query, documents)
        text = format_documents(documents) or "[Nothing was found.]"
        fields = {"found": len(documents), "cached": cached}
        return ToolResult(text, None, time.monotonic() - began, fields=fields)

    def _search(self) -> Search:
        if self._encoder is not None:
            return dense_search(str(self._place), self._encoder)
        if self._where == "corpus":
            return local_search(str(self._place))
        key = (*self._source, self._retries)
        retries = self._retries
        where = self._where
        place = self._place

        def connect() -> Search:
            if where == "server":
                return ServerSearch(str(place), retries=retries)
            return WebSearch(where, place, retries=retries)

        return _share(_connections, key, connect)


class _Memory:
    """The latest answers of the process."""

    def __init__(self, most: int):
        self._most = most
        self._answers: OrderedDict[str, list[Document]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, query: str) -> list[Document] | None:
        with self._lock:
            if query in self._answers:
                self._answers.move_to_end(query)
            return self._answers.get(query)

    def put(self, query: str, documents: list[Document]) -> None:
        with self._lock:
            self._answers[query] = documents
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)


_lock = threading.Lock()
_memories: dict[tuple[int, Any], _Memory] = {}
_connections: dict[tuple[int, Any], Search] = {}
_Kept = TypeVar("_Kept")


def _share(kept: dict[tuple[int, Any], _Kept], key: Any, make: Callable[[], _Kept]) -> _Kept:
    """Return what the tools of this process share; a forked process has its own."""
    with _lock:
        if (os.getpid(), key) not in kept:
            kept[os.getpid(), key] = make()
        return kept[os.getpid(), key]
