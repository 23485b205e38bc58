"""One connection to a server: send a call, wait for the answer, hold the second deadline."""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Any

from gem_core.execution.sandbox.results import SandboxError

GRACE = 10.0
"""Seconds that the client waits longer than a call may take; then the server does not work.

A call's own seconds begin with its program: on a busy machine it waits for a new process first."""


class Connection:
    """A connected socket."""

    def __init__(self, peer: socket.socket):
        self._peer = peer
        self._poll = select.poll()
        self._poll.register(peer, select.POLLIN)

    def ask(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a message and return the answer.

        Args:
            message: in the form of `gem_sandbox.server.client`.
            seconds: how long the server may take; `GRACE` is added.

        Raises:
            SandboxError: the server does not answer in time, or has gone.
        """
        until = time.monotonic() + seconds + GRACE
        body = json.dumps(message).encode()
        try:
            self._peer.settimeout(seconds + GRACE)
            self._peer.sendall(len(body).to_bytes(4, "little") + body)
            size = int.from_bytes(self._read(4, until), "little")
            answer: dict[str, Any] = json.loads(self._read(size, until))
        except OSError as error:
            raise SandboxError(f"The sandbox's server does not answer: {error}.") from None
        return answer

    def close(self) -> None:
        """Close the socket: the server ends what runs for it."""
        self._peer.close()

    def _read(self, size: int, until: float) -> bytes:
        parts = []
        while size:
            if not self._poll.poll(max(0.0, 1000 * (until - time.monotonic()))):
                raise TimeoutError("it passed the deadline")
            part = self._peer.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionError("it closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
