"""A connection to a server that speaks OpenEnv's messages."""

from __future__ import annotations

import json
import os
import threading
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

from gem_core.errors import GemError, MissingDependencyError
from gem_core.server.addresses import TOKEN_VARIABLE, is_loopback

CONNECT_S = 10.0
MAX_BYTES = 64 << 20


class ServerError(GemError, RuntimeError):
    """What a server answered with an error, or that it is gone.

    Attributes:
        code: OpenEnv's name of the reason.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


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
                reply = json.loads(self._socket.recv(timeout=self.deadline_s))
            except TimeoutError:
                self._stack.close()
                raise TimeoutError(f"no answer from the server in {self.deadline_s:g} s") from None
            except ConnectionClosed as error:
                raise ServerError(f"The connection was lost: {error}", "CLOSED") from None
        if reply.get("type") == "error":
            error_data = reply.get("data", {})
            raise ServerError(str(error_data.get("message")), str(error_data.get("code")))
        answered: dict[str, Any] = reply.get("data", {})
        return answered

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
                "Environments of a server need websockets: install gem-core[server]."
            ) from None
        local = is_loopback(urlsplit(self.url).hostname)
        headers = _token_header(self.url, local)
        options: dict[str, Any] = {"proxy": None} if local else {}
        try:
            connection = connect(
                self.url,
                open_timeout=CONNECT_S,
                max_size=MAX_BYTES,
                compression=None,
                additional_headers=headers,
                **options,
            )
            return self._stack.enter_context(connection)
        except InvalidHandshake as error:
            hint = f"; is {TOKEN_VARIABLE} set to its token?" if "401" in str(error) else ""
            raise ServerError(f"{self.url} refused: {error}{hint}", "REFUSED") from None
        except (OSError, TimeoutError) as error:
            raise ServerError(f"No server at {self.url}: {error}", "UNREACHABLE") from None


def socket_url(url: str) -> str:
    """Return the WebSocket's address.

    >>> socket_url("http://127.0.0.1:8000/")
    'ws://127.0.0.1:8000/ws'

    Raises:
        GemError: the address is of another kind.
    """
    kind, separator, rest = url.partition("://")
    kinds = {"http": "ws", "ws": "ws", "https": "wss", "wss": "wss"}
    if not separator or kind not in kinds:
        raise GemError(f"{url!r} is no address of a server: http://127.0.0.1:8000")
    return f"{kinds[kind]}://{rest.rstrip('/')}/ws"


def _token_header(url: str, local: bool) -> dict[str, str]:
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        return {}
    if not local and not url.startswith("wss://"):
        raise GemError(
            f"The token would travel unencrypted to {url}: use https, or a tunnel to 127.0.0.1."
        )
    return {"Authorization": f"Bearer {token}"}
