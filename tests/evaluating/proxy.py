"""A small HTTP proxy on the loopback interface: it forwards requests, and tunnels for TLS."""

from __future__ import annotations

import asyncio
import threading
from urllib.parse import urlsplit


class Proxy:
    """Serves in a thread; a context manager.

    Attributes:
        heads: the heads of the requests that it got.
    """

    def __init__(self):
        self.heads = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._up = threading.Event()

    def __enter__(self):
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
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
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        method, target, _ = head.split(" ", 2)
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        other_reader, other_writer = await asyncio.open_connection(parts.hostname, parts.port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            other_writer.write(head.replace(target, parts.path, 1).encode())
        await asyncio.gather(copy(reader, other_writer), copy(other_reader, writer))


async def copy(reader, writer):
    """Write what is read, to the end."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
