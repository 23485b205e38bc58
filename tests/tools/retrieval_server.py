"""Real HTTP servers on the loopback for the tests of the search tool."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse


class RetrievalServer(ThreadingHTTPServer):
    """Answers in the format of Search-R1, after the faults in ``faults``.

    Attributes:
        faults: what the next requests get: ``"500"``, ``"404"``, ``"garbage"``, ``"short"`` (fewer
            results than queries), ``"stall"``, ``"drip"`` (a byte now and then), ``"hang up"``.
        bodies: of the requests that arrived; the parameters of a GET.
        pause: seconds that every right answer takes.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.faults: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.pause = 0.0
        self.stop = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/retrieve"


class _Handler(BaseHTTPRequestHandler):
    server: RetrievalServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        if self._faulty():
            return
        time.sleep(self.server.pause)
        rows = [
            [
                {"document": {"id": str(n), "contents": f'"About {q}"\nText {n}.'}, "score": 1.0}
                for n in range(body["topk"])
            ]
            for q in body["queries"]
        ]
        self._answer(json.dumps({"result": rows}).encode())

    def do_GET(self) -> None:
        self.server.bodies.append(parse_qs(urlparse(self.path).query))
        if self._faulty():
            return
        pages = [{"title": "Osk", "snippet": "A river.", "link": "http://osk.invalid"}] * 5
        self._answer(json.dumps({"organic_results": pages, "items": pages}).encode())

    def _faulty(self) -> bool:
        fault = self.server.faults.pop(0) if self.server.faults else None
        if fault in ("500", "404"):
            self.send_error(int(fault))
        elif fault == "garbage":
            self._answer(b"<html>busy</html>")
        elif fault == "short":
            self._answer(b'{"result": []}')
        elif fault == "stall":
            self.server.stop.wait(30)
        elif fault == "drip":
            self.send_response(200)
            self.end_headers()
            while not self.server.stop.wait(0.05):
                self.wfile.write(b" ")
        return fault is not None

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def handle(self) -> None:
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            return  # the client gave up, as the tests want


@contextmanager
def serving() -> Iterator[RetrievalServer]:
    """Run a server inside the block."""
    with RetrievalServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.stop.set()
            server.shutdown()
            thread.join()
