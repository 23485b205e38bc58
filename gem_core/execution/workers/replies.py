"""How a worker's replies leave it: those that follow each other quickly in one write."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import Any, TypeAlias

from gem_core.execution.workers.messages import pack

Reply: TypeAlias = tuple[Any, ...]

HELD_S = 0.0005
"""Seconds for which a reply may wait for those of the calls that follow."""


class Replies:
    """The sending side of a worker's socket; any thread may use it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._held: deque[Reply] = deque()
        self._held_since = 0.0
        self._wake: SimpleQueue[None] = SimpleQueue()
        # Sends what is held where the next call takes longer than was thought.
        threading.Thread(target=self._send_held, daemon=True, name="gem-sender").start()

    def send(self, reply: Reply) -> None:
        """Send a reply now, with those that were held."""
        self._held.append(reply)
        self._flush()

    def hold(self, reply: Reply) -> None:
        """Send a reply with later ones; another call is about to run.

        It is sent with the first of those that have waited for `HELD_S`, also while the next call
        runs, if that lets the other threads of the process run.
        """
        now = time.monotonic()
        begins = not self._held
        if begins:
            self._held_since = now
        self._held.append(reply)
        if begins:
            self._wake.put(None)
        elif now - self._held_since > HELD_S:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            taken: list[Reply] = []
            while self._held:
                taken.append(self._held.popleft())
            if taken:
                self._connection.sendall(pack(taken))

    def _send_held(self) -> None:
        while True:
            self._wake.get()
            time.sleep(HELD_S)
            self._flush()
