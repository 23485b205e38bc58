"""A retrieval server in the format of Search-R1, which GEM uses too.

``POST URL {"queries": [...], "topk": k, "return_scores": true}`` is answered by ``{"result":
[[{"document": {...}, "score": s}, ...], ...]}``, one list per query; entries without scores are the
documents themselves.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, NamedTuple

from gem_core.tools.search.documents import Document, SearchError, document_of
from gem_core.tools.search.requests import ask_json


class _Waiting(NamedTuple):
    query: str
    topk: int
    deadline: float
    future: Future[list[Document]]


class ServerSearch:
    """Asks a retrieval server; queries that wait at the same time share a request.

    A query is sent at once while fewer than ``senders`` requests are under way; those that come
    meanwhile are sent together by the next free one. It may be used from many threads.

    Args:
        url: of the server, path included.
        retries: further attempts of a request that failed.
        batch: queries in one request at most.
        senders: requests at once.
    """

    def __init__(self, url: str, *, retries: int = 2, batch: int = 64, senders: int = 4):
        self.url = url
        self._retries = retries
        self._batch = batch
        self._most_senders = senders
        self._senders = 0
        self._waiting: deque[_Waiting] = deque()
        self._lock = threading.Lock()

    def search(self, query: str, topk: int, seconds: float) -> list[Document]:
        """Return the documents of a query.

        Raises:
            SearchError: the server does not answer in time, or not with documents.
        """
        future: Future[list[Document]] = Future()
        waiting = _Waiting(query, topk, time.monotonic() + seconds, future)
        with self._lock:
            self._waiting.append(waiting)
            start = self._senders < self._most_senders
            self._senders += start
        if start:
            threading.Thread(target=self._send_all, name="gem-search", daemon=True).start()
        try:
            return future.result(timeout=seconds)
        except FutureTimeout:
            raise SearchError("timeout", "the server did not answer in time") from None

    def _send_all(self) -> None:
        while batch := self._next_batch():
            try:
                found = self._ask(batch)
            except BaseException as error:
                for one in batch:
                    one.future.set_exception(error)
                if not isinstance(error, SearchError):
                    with self._lock:
                        self._senders -= 1
                    raise
            else:
                for one, documents in zip(batch, found, strict=True):
                    one.future.set_result(documents)

    def _next_batch(self) -> list[_Waiting]:
        """Return queries of one number of documents that still wait; none ends the sender."""
        batch: list[_Waiting] = []
        with self._lock:
            now = time.monotonic()
            while self._waiting and len(batch) < self._batch:
                if self._waiting[0].deadline <= now:
                    self._waiting.popleft()  # its caller has given up
                elif batch and self._waiting[0].topk != batch[0].topk:
                    break
                else:
                    batch.append(self._waiting.popleft())
            if not batch:
                self._senders -= 1
        return batch

    def _ask(self, batch: list[_Waiting]) -> list[list[Document]]:
        body = {
            "queries": [one.query for one in batch],
            "topk": batch[0].topk,
            "return_scores": True,
        }
        request = urllib.request.Request(
            self.url,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method="POST",
        )
        deadline = max(one.deadline for one in batch)
        answer = ask_json(request, deadline, self._retries, proxies=False)
        return _documents(answer, len(batch), batch[0].topk)


def _documents(answer: Any, count: int, topk: int) -> list[list[Document]]:
    rows = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or len(rows) != count:
        raise SearchError("bad_response", "the server's answer has not one result per query")
    try:
        return [[document_of(_without_score(entry)) for entry in row[:topk]] for row in rows]
    except (TypeError, ValueError):
        raise SearchError("bad_response", "the server's results are not documents") from None


def _without_score(entry: Any) -> Any:
    return entry["document"] if isinstance(entry, dict) and "document" in entry else entry
