"""A server on the loopback interface that answers as a test wants, well or badly."""

from __future__ import annotations

import asyncio
import json
import random
import threading

CUT = object()
"""In a reply: the connection is closed here."""


class Server:
    """Serves in a thread; a context manager.

    Args:
        reply: from the number of the request and its body to the parts of the answer: bytes are
            sent, a number of seconds is waited, `CUT` closes the connection.
        tls: the context of TLS; ``None``: plain HTTP.
    """

    def __init__(self, reply, tls=None):
        self.reply = reply
        self.tls = tls
        self.bodies = []
        self.heads = []
        self.connections = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._up = threading.Event()

    @property
    def url(self):
        scheme = "https" if self.tls else "http"
        return f"{scheme}://127.0.0.1:{self.port}/v1"

    def __enter__(self):
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2048, ssl=self.tls)
        server = self._loop.run_until_complete(starting)
        self.port = server.sockets[0].getsockname()[1]
        self._up.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = dict(x.lower().split(": ", 1) for x in head.split("\r\n")[1:-2])
                body = json.loads(await reader.readexactly(int(lines["content-length"])))
                self.heads.append(head)
                self.bodies.append(body)
                for part in self.reply(len(self.bodies) - 1, body):
                    if part is CUT:
                        return
                    if isinstance(part, bytes):
                        writer.write(part)
                        await writer.drain()
                    else:
                        await asyncio.sleep(part)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone
        finally:
            writer.close()


def http(status, body, *headers):
    """A whole answer."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chat(text, finish_reason="stop", **message):
    """A completion of chat."""
    message = {"role": "assistant", "content": text, **message}
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 6},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }


GOOD = http(200, chat("\\boxed{5}"))
BAD = {
    "rate_limited": [http(429, {"error": "slow down"}, "retry-after-ms: 20")],
    "server_error": [http(503, b"<html>overloaded</html>")],
    "timeout": [5.0, GOOD],
    "connection": [GOOD[: len(GOOD) // 2], CUT],
    "bad_answer": [http(200, b'{"choices": [{"message"')],
    "refused": [http(422, {"error": "unknown field"})],
}
"""Kind of error -> an answer that leads to it."""
GARBAGE = (
    [CUT],
    [b"\x00\xff garbage \r\n\r\n"],
    [b"HTTP/1.1 abc OK\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n", CUT],
    [b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999\r\n\r\n", CUT],
    [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", CUT],
    [b"HTTP/1.1 200 OK\r\n" + b"x" * 200_000, CUT],
    [http(200, b"")],
    [http(200, b"[" * 100_000)],
    [http(200, b"\xff\xfe\x00")],
    [http(200, "text")],
    [http(200, [])],
    [http(200, {"choices": []})],
    [http(200, {"choices": [None]})],
    [http(200, {"choices": ["message"]})],
    [http(200, {"choices": [{"message": "text"}]})],
    [http(200, {"choices": [{"message": {"content": 3}}]})],
    [http(200, {"choices": [{"text": ["a"]}]})],
)  # fmt: skip


def unreliable(seed):
    """A server that fails in some way at every other request."""
    rng = random.Random(seed)
    bad = [reply for kind, reply in BAD.items() if kind != "timeout"]
    bad += [[1.0, GOOD], *GARBAGE]

    def reply(number, body):
        return rng.choice(bad) if rng.random() < 0.5 else [GOOD]

    return reply
