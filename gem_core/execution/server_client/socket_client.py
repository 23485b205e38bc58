"""A connection to a server that speaks OpenEnv's messages."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack, suppress
from typing import Any

from gem_core.errors import MissingDependencyError
from gem_core.execution.server_client.connecting import (
    ServerError,
    connect_options,
    not_connected,
    read_answer,
    socket_url,
)

__all__ = ["ServerError", "SocketClient", "socket_url"]


class SocketClient:
    """One connection: one session of the server.

    Args:
        url: base address: ``http://127.0.0.1:8000/env/game:Sudoku-v0-easy``.
        query: what follows the path of the WebSocket.
        deadline_s: seconds for the answer to a message.

    Raises:
        MissingDependencyError: ``websockets`` is not installed.
        GemError: the address is not one, or a token would travel unencrypted to another machine.
        ServerError: there is no server, or it refuses the connection.
    """

    def __init__(self, url: str, query: str = "", deadline_s: float = 60.0) -> None:
        self.url = socket_url(url) + query
        self.deadline_s = deadline_s
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._socket = self._connect()

    def request(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the data of its answer.

        Raises:
            ServerError: the server's error, or the connection is lost.
            TimeoutError: no answer in time; the connection is closed, because a late answer would
                be taken for that of the next message.
        """
        message = {"type": kind, "data": data} if kind != "state" else {"type": kind}
        from websockets.exceptions import ConnectionClosed

        with self._lock:
            # A server that refuses a session says why and closes: its message waits to be read.
            with suppress(ConnectionClosed):
                self._socket.send(json.dumps(message))
            try:
                raw = self._socket.recv(timeout=self.deadline_s)
            except TimeoutError:
                self._stack.close()
                raise TimeoutError(f"no answer from the server in {self.deadline_s:g} s") from None
            except ConnectionClosed as error:
                raise ServerError(f"The connection was lost: {error}", "CLOSED") from None
        return read_answer(raw)

    def close(self) -> None:
        """End the session."""
        from websockets.exceptions import ConnectionClosed

        with self._lock:
            try:
                self._socket.send(json.dumps({"type": "close"}))
            except ConnectionClosed:
                return
            finally:
                self._stack.close()

    def _connect(self) -> Any:
        try:
            from websockets.exceptions import InvalidHandshake
            from websockets.sync.client import connect
        except ImportError:
            raise MissingDependencyError(
                "Environments of a server need websockets: pip install 'gem-core[server]'."
            ) from None
        try:
            return self._stack.enter_context(connect(self.url, **connect_options(self.url)))
        except (InvalidHandshake, OSError, TimeoutError) as error:
            raise not_connected(self.url, error) from None
