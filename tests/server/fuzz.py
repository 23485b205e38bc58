"""Requests that a hostile client could send, drawn from a seed."""

from __future__ import annotations

import http.client
import json
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import Any
from urllib.parse import quote

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from .hostile_states import VALUES, deep, hostile
from .raw import frame, upgrade

IDS = (
    "game:Sudoku-v0-easy",
    "game:Game2048-v0-easy",
    "game:Minesweeper-v0-random",
    "game:Sokoban-v0-easy",
    "game:Mastermind-v0-random",
    "game:FifteenPuzzle-v0-random",
    "game:WordSearch-v0-easy",
    "game:Crosswords-v0-easy",
    "game:WikiGame-v0-easy",
    "multi:Nim-v0-easy",
    "multi:ReturnsDesk-v0",
    "webshop:train-text",
    "rg:chain_sum",
    "math:Remainders",
    "mcp:update-v0",
    "mcp:report-v0",
    "terminal:files-v0",
)
SQL = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c",
    "ATTACH DATABASE '../fuzz.db' AS x",
    "VACUUM INTO '../fuzz.db'",
    "SELECT printf('%7900d', value) FROM report",
    "INSERT INTO report VALUES (zeroblob(99999999), 1)",
    "INSERT INTO report SELECT a.name, b.id FROM orders b, orders c, customers a",
    "SELECT load_extension('../x')",
    "PRAGMA journal_mode = WAL",
    "SELECT * FROM customers; DROP TABLE customers",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW")
PATHS = (
    "/health",
    "/metrics",
    "/environments",
    "/env/game:Sudoku-v0-easy/schema",
    "/env/../../etc/passwd/metadata",
    "/env/%2e%2e%2fx/schema",
    "/env/nothing/ws",
    "/sessions",
    "/sessions/x",
    "/sessions/x/step",
    "/sessions/../../x/load",
    "/%00",
    "//",
    "/\u00e9",
    "/" + "a" * 8000,
)
HEADERS = (
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: 5\r\nContent-Length: 6",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Upgrade: h2c\r\nConnection: Upgrade",
    b"Upgrade: websocket\r\nConnection: Upgrade",
    b"Expect: 100-continue",
    b"Host: evil.example",
    b"Origin: http://evil.example",
    b"Authorization: Bearer \xff",
    b"X: " + b"y" * 70_000,
    b"No colon here",
    b": empty",
    b"X-Forwarded-For: 1.2.3.4",
)
FORMS = ("\\boxed{%s}", "<answer>%s</answer>", "%s", "<tool_call>%s</tool_call>")


class Fuzz:
    """A client that sends anything, and counts what was answered, as ``(kind, answer)``.

    Args:
        port: of the server.
        seed: decides every request.
    """

    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.rng = Random(seed)
        self.counts: Counter[tuple[str, str]] = Counter()
        self._stack = ExitStack()
        self._sockets: dict[str, ClientConnection] = {}
        self._states: dict[str, Any] = {}
        self._http = self._connection()
        kinds: dict[str, tuple[int, Callable[[], str]]] = {
            "state": (34, self.state),
            "step": (22, self.step),
            "reset": (8, self.reset),
            "message": (10, self.message),
            "parameters": (9, self.parameters),
            "path": (8, self.path),
            "body": (5, self.body),
            "header": (3, self.header),
            "frame": (1, self.frames),
        }
        self._kinds = list(kinds.items())

    def send(self, number: int) -> None:
        """Send some requests, each of a kind that is drawn."""
        names = [name for name, _ in self._kinds]
        weights = [weight for _, (weight, _) in self._kinds]
        calls = {name: call for name, (_, call) in self._kinds}
        for kind in self.rng.choices(names, weights, k=number):
            self.counts[kind, calls[kind]()] += 1

    def close(self) -> None:
        """End every connection."""
        self._http.close()
        self._stack.close()

    # --- messages of a WebSocket ---------------------------------------------------------------

    def state(self) -> str:
        """Load a changed state."""
        name = self._id()
        self._socket(name)
        changed = next(hostile(self._states[name], self.rng, 1))
        return self._ask(name, json.dumps({"type": "load", "data": changed}))

    def step(self) -> str:
        """Play an action of any text."""
        name = self._id()
        rng = self.rng
        answer: Any = rng.choice((*VALUES[10:16], "1 1 1", "left", "search[x]", "2 1", "\u202e"))
        if name.startswith("mcp:"):
            answer = json.dumps({"name": "query", "arguments": {"sql": rng.choice(SQL)}})
            answer = answer.replace("query", rng.choice(("query", "execute", "describe", "x")))
        text: Any = rng.choice(FORMS).replace("%s", answer)
        data: Any = {"text": text} if rng.random() < 0.9 else rng.choice(VALUES)
        again = {"type": "reset", "data": {"seed": rng.randrange(99)}}  # drawn whatever is answered
        reply = self._ask(name, json.dumps({"type": "step", "data": data}))
        if reply == "EXECUTION_ERROR":  # the episode is over
            self._ask(name, json.dumps(again))
        return reply

    def reset(self) -> str:
        """Start an episode with any seed and options."""
        rng = self.rng
        data: dict[str, Any] = {"seed": rng.choice((None, -1, 0, 2**70, 10**300, "1", 1.5, True))}
        if rng.random() < 0.4:
            data["options"] = rng.choice((*VALUES, {"index": 10**9}, {"index": -1}, {"x": deep()}))
        if rng.random() < 0.3:
            data["episode_id"] = rng.choice(VALUES)
        return self._ask(self._id(), json.dumps({"type": "reset", "data": data}))

    def message(self) -> str:
        """Send a message of any form."""
        rng = self.rng
        kind = rng.choice(("save", "state", "load", "step", "reset", "x", "", None, 3, [], {}))
        data = rng.choice((*VALUES, deep()))
        forms = (
            lambda: json.dumps({"type": kind, "data": data}),
            lambda: json.dumps({"type": "save", "data": {}}),
            lambda: json.dumps(rng.choice(VALUES)),
            lambda: "[" * rng.choice((3, 5000, 200_000)),
            lambda: "{" + "".join(rng.choices('{}[]",:0e-x', k=40)),
            lambda: '{"type": "save", "type": "state", "data": {}}',
            lambda: '{"type": "step", "data": {"text": ' + "9" * 6000 + "}}",
        )
        return self._ask(self._id(), rng.choice(forms)())

    def _ask(self, name: str, text: str) -> str:
        connection = self._socket(name)
        try:
            connection.send(text)
            reply = json.loads(connection.recv(timeout=60))
        except ConnectionClosed as closed:
            del self._sockets[name]
            return f"closed {closed.rcvd.code if closed.rcvd else 'hard'}"
        return str(reply["data"]["code"] if reply["type"] == "error" else reply["type"])

    def _socket(self, name: str) -> ClientConnection:
        if name not in self._sockets:
            url = f"ws://127.0.0.1:{self.port}/env/{quote(name, safe=':')}/ws"
            options: dict[str, Any] = {"max_size": None, "compression": None, "proxy": None}
            options["ping_interval"] = None  # on a busy machine a pong may take long
            connection = self._stack.enter_context(connect(url, **options))
            self._sockets[name] = connection
            connection.send('{"type": "reset", "data": {"seed": 3}}')
            connection.recv(timeout=60)
            connection.send('{"type": "save"}')
            self._states[name] = json.loads(connection.recv(timeout=60))["data"]
        return self._sockets[name]

    def _id(self) -> str:
        if self.rng.random() < 0.02:
            return IDS[-1]  # a shell takes much longer than the others
        return self.rng.choice(IDS[:-1])

    # --- HTTP ----------------------------------------------------------------------------------

    def parameters(self) -> str:
        """Open a session with any parameters; one that was opened is closed."""
        rng = self.rng
        name = rng.choice((*IDS[:-1], "code:Formulas", "qa:Almanac", "no:Such", "remote:x", ""))
        names = ("game", "opponent", "user", "level", "dataset", "path", "url", "args", "max_turns")
        values = (*VALUES, "subprocess:Popen", "guarded", "os:system", "http://127.0.0.1:1", 5, 12)
        given: Any = {rng.choice(names): rng.choice(values) for _ in range(rng.randrange(3))}
        if rng.random() < 0.1:
            given = rng.choice(VALUES)
        body = json.dumps({"environment": name, "parameters": given})
        status, answer = self._request("POST", "/sessions", body.encode())
        if status == 200:
            session = json.loads(answer)["session"]
            self._request("DELETE", f"/sessions/{session}")
        return str(status)

    def path(self) -> str:
        """Ask for any path with any method."""
        rng = self.rng
        path = rng.choice(PATHS)
        if rng.random() < 0.3:
            path += rng.choice(("?x=%ff", "#", "/..", "%", "?" + "&" * 3000, ";x", "\\"))
        return str(self._request(rng.choice(METHODS), quote(path, safe="/:?%#&=;\\"))[0])

    def body(self) -> str:
        """Send any body."""
        rng = self.rng
        path = rng.choice(("/sessions", "/sessions/x/step", "/sessions/x/load"))
        bodies = (
            lambda: rng.randbytes(rng.choice((1, 50, 5000))),
            lambda: b"[" * 100_000,
            lambda: b"x" * ((1 << 20) + 1),
            lambda: json.dumps(rng.choice(VALUES)).encode(),
            lambda: json.dumps({"environment": rng.choice(VALUES)}).encode(),
            lambda: b'{"environment": "game:Sudoku-v0-easy", "environment": 3}',
            lambda: b"\xff\xfe",
        )
        return str(self._request("POST", path, rng.choice(bodies)())[0])

    def header(self) -> str:
        """Send a head of any form, and half a body, on a connection of its own."""
        rng = self.rng
        lines = rng.sample(HEADERS, rng.randrange(1, 4))
        starts = (b"GET /health HTTP/1.1", b"POST /sessions HTTP/1.1", b"X", b"GET / HTTP/9")
        start = rng.choice(starts)
        host = b"Host: 127.0.0.1" if rng.random() < 0.8 else b"H: x"
        data = b"\r\n".join([start, host, *lines, b"", b"5\r\nabcde\r\n0\r\n\r\n"])
        return self._raw(socket.create_connection(("127.0.0.1", self.port), timeout=60), data)

    def frames(self) -> str:
        """Send frames of any form on a WebSocket of its own."""
        rng = self.rng
        connection = upgrade(self.port, f"/env/{IDS[0]}/ws")
        data = b""
        for _ in range(rng.randrange(1, 6)):
            code = rng.choice((0, 1, 1, 2, 3, 8, 9, 10, 15))
            payload = rng.choice((b"", b"{", b"\xff\xfe", b'{"type": "state"}', rng.randbytes(200)))
            data += frame(code, payload, final=rng.random() < 0.7, masked=rng.random() < 0.9)
        return self._raw(connection, data)

    def _raw(self, connection: socket.socket, data: bytes) -> str:
        """Send bytes and no more; return the status of an answer by HTTP, or ``closed``."""
        received = b""
        with connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(1 << 16):
                    received += part
            except ConnectionError:
                pass
        return received[9:12].decode() if received.startswith(b"HTTP/1.1") else "closed"

    def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        try:
            self._http.request(method, path, body)
            answer = self._http.getresponse()
            return answer.status, answer.read()
        except (http.client.HTTPException, ConnectionError):
            self._http.close()  # the server closes a connection on which an answer came too early
            self._http = self._connection()
            return 0, b""

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
