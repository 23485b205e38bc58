"""The server of the page: this machine only, reading only, nothing of the address is a path.

Episodes are untrusted text. The page writes them as text, never as HTML, and its content security
policy allows no script but its own files. The Host header must name this machine, so that a page
of another site cannot reach the server through a name that it controls (DNS rebinding).
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gem_core.errors import GemError, RunError
from gem_view.answers import encode
from gem_view.api import Viewer

ADDRESS = "127.0.0.1"
HOSTS = ("127.0.0.1", "localhost")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SCRIPTS = (
    "dom.js",
    "data.js",
    "charts.js",
    "tokens.js",
    "report.js",
    "pages.js",
    "episodes.js",
    "compare.js",
    "main.js",
)
"""The page's scripts, in the order in which they run."""
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_JSON = "application/json"
MAX_OPTIONS = 100
MAX_CONNECTIONS = 64
"""A browser opens six; what is beyond is closed: idle connections must not fill the memory."""
PAGE_FILES = ("index.html", "style.css", *SCRIPTS)


def page_file(name: str) -> str:
    """Return one of `PAGE_FILES`."""
    return (files("gem_view") / "page" / name).read_text(encoding="utf-8")


class PageServer(ThreadingHTTPServer):
    """Serves the page and the answers of a `Viewer`."""

    daemon_threads = True

    def __init__(self, viewer: Viewer, port: int) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.viewer = viewer
        self._free = threading.Semaphore(MAX_CONNECTIONS)
        self.pages = {f"/{name}": page_file(name).encode() for name in PAGE_FILES}
        self.pages["/"] = self.pages["/index.html"]

    @property
    def address(self) -> str:
        """The address to open in a browser."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, of which there are not more than `MAX_CONNECTIONS`."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the requests of one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a browser that closed its connection; print anything else."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "gem-core"
    sys_version = ""
    timeout = 30
    disable_nagle_algorithm = True  # else the body waits 40 ms for the answer to the headers

    def do_GET(self) -> None:
        """Answer with a file of the page, or with data."""
        if not self._is_for_this_machine():
            self._error(403, "The Host header names another machine.")
            return
        if "Transfer-Encoding" in self.headers or self.headers.get("Content-Length", "0") != "0":
            self._refuse(413, "A question has no body.")
            return
        try:
            parts = urlsplit(self.path)
            options = dict(
                parse_qsl(parts.query, keep_blank_values=True, max_num_fields=MAX_OPTIONS)
            )
        except ValueError as error:
            self._error(400, f"This is no address: {error}.")
            return
        if parts.path in self.server.pages:
            kind = TYPES.get(parts.path.rpartition(".")[2], "text/html")
            self._answer(200, f"{kind}; charset=utf-8", self.server.pages[parts.path])
            return
        question = None
        if parts.path.startswith("/api/"):
            question = self.server.viewer.questions.get(parts.path.removeprefix("/api/"))
        if question is None:
            self._error(404, "There is no such page.")
            return
        self._answer(*self._ask(question, options))

    do_HEAD = do_GET

    def _ask(
        self, question: Callable[[Mapping[str, str]], Any], options: Mapping[str, str]
    ) -> tuple[int, str, bytes]:
        """Return an answer; there is one whatever happens."""
        try:
            return 200, _JSON, encode(question(options))
        except GemError as error:
            return 400, _JSON, encode({"error": str(error)})
        except Exception as error:  # a defect: its place is printed, and the page says so
            traceback.print_exc()
            text = f"The viewer has a defect ({type(error).__name__}); its output says where."
            return 500, _JSON, encode({"error": text})

    def _only_reads(self) -> None:
        self._refuse(405, "The viewer only reads.")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _only_reads

    def _refuse(self, code: int, text: str) -> None:
        self.close_connection = True  # the body is not read
        self._error(code, text)

    def _is_for_this_machine(self) -> bool:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1:
            return False
        name, _, port = hosts[0].partition(":")
        return name in HOSTS and port == str(self.server.server_port)

    def _error(self, code: int, text: str) -> None:
        self._answer(code, _JSON, encode({"error": text}))

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the page asks every two seconds whether there is something new."""


def make_server(paths: Sequence[Path], port: int = 0) -> PageServer:
    """Return a server of the runs in ``paths``; a port of 0 is any free one.

    Raises:
        RunError: there is no run, or the port is in use.
    """
    viewer = Viewer(paths)
    try:
        return PageServer(viewer, port)
    except OSError as error:
        raise RunError(
            f"Port {port} cannot be used ({error}); choose another with --port."
        ) from None
