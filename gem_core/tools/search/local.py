"""BM25 over a local corpus, by bm25s; one index per process and corpus."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

from gem_core.env.files import file_revision
from gem_core.errors import MissingDependencyError
from gem_core.tools.search.bm25 import load_bm25s
from gem_core.tools.search.documents import Document, corpus_path, read_corpus

_WORD = re.compile(r"\w+")
_MOST_WORDS = 100


class LocalSearch:
    """A searchable corpus.

    Raises:
        MissingDependencyError: bm25s is not installed.
    """

    def __init__(self, documents: list[Document]):
        bm25s = require_bm25s()
        self._documents = documents
        texts = [_words(f"{document.title} {document.text}") for document in documents]
        self._known = {word for text in texts for word in text}
        self._engine: Any = bm25s.BM25()
        self._engine.index(texts, show_progress=False)

    def search(self, query: str, topk: int, seconds: float) -> list[Document]:
        """Return the best documents; those of equal score are in the order of the corpus.

        Words that no document has are ignored; without a common word there is no document. It
        waits for nothing, whatever ``seconds`` is.
        """
        words = [word for word in _words(query)[:_MOST_WORDS] if word in self._known]
        if not words:
            return []
        scores = self._engine.get_scores(words)
        ranked = (-scores).argsort(kind="stable")[:topk]
        return [self._documents[i] for i in ranked.tolist() if scores[i] > 0]


def require_bm25s() -> Any:
    """Return the module bm25s.

    Raises:
        MissingDependencyError: it is not.
    """
    try:
        return load_bm25s()
    except ImportError as error:
        raise MissingDependencyError(
            "Searching a local corpus needs bm25s: pip install 'gem-core[search]'. A retrieval "
            "server (the option url) needs nothing."
        ) from error


_lock = threading.Lock()
_digests: dict[Path, tuple[tuple[int, int], str]] = {}
_indexes: dict[str, LocalSearch] = {}


def revision_of(corpus: str) -> str:
    """Return what identifies a corpus; a file is read again only if it changed."""
    path = corpus_path(corpus)
    status = path.stat()
    version = status.st_mtime_ns, status.st_size
    with _lock:
        if path not in _digests or _digests[path][0] != version:
            _digests[path] = version, file_revision(path)
        return _digests[path][1]


def local_search(corpus: str) -> LocalSearch:
    """Return the index of a corpus, built at the first call of the process.

    Raises:
        DataError: the corpus cannot be read.
        MissingDependencyError: bm25s is not installed.
    """
    revision = revision_of(corpus)
    with _lock:
        if revision not in _indexes:
            _indexes[revision] = LocalSearch(read_corpus(corpus_path(corpus)))
        return _indexes[revision]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
