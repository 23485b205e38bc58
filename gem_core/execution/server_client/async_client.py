"""A connection of an event loop: one session of a server, without a thread."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from gem_core.errors import MissingDependencyError
from gem_core.execution.server_client.connecting import (
    ServerError,
    connect_options,
    not_connected,
    read_answer,
    session_path,
    session_query,
    socket_url,
)

_TOO_BIG = 1009  # WebSocket's code
CLOSE_S = 5.0
"""Seconds in which a server must say that it has seen the end of a session."""


class AsyncClient:
    """One connection, which is one session of the server, for `.session_pool`."""

    def __init__(self, address: str, socket: Any) -> None:
        self.address = address
        self._socket = socket

    @property
    def is_open(self) -> bool:
        """Whether the connection was not lost, as far as it is known here."""
        return self._socket.close_code is None

    async def request(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the data of its answer.

        Raises:
            ServerError: the server's error, or the connection is lost.
        """
        from websockets.exceptions import ConnectionClosed

        # A server that refuses a session says why and closes: its message waits to be read.
        with suppress(ConnectionClosed):
            await self._socket.send(json.dumps({"type": kind, "data": data}))
        try:
            raw = await self._socket.recv()
        except ConnectionClosed as error:
            text = f"the connection to {self.address} was lost: {_how(error)}"
            raise ServerError(text, "CLOSED") from None
        return read_answer(raw)

    async def close(self) -> None:
        """End the session; it is over when this returns, unless the server does not answer."""
        from websockets.exceptions import ConnectionClosed

        try:
            await self._socket.send(json.dumps({"type": "close"}))
            await asyncio.wait_for(self._socket.wait_closed(), CLOSE_S)
        except (ConnectionClosed, asyncio.TimeoutError):
            pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Drop the connection at once, which ends the session; a second call has no effect."""
        self._socket.transport.abort()


async def connect(address: str, environment: str, parameters: dict[str, Any]) -> AsyncClient:
    """Return a connection to an environment of a server, whose session may not be open yet.

    Raises:
        MissingDependencyError: ``websockets`` is not installed.
        GemError: the address is not one, or a token would travel unencrypted to another machine.
        ServerError: there is no server, or it refuses the connection.
    """
    try:
        from websockets.asyncio.client import connect as connecting
        from websockets.exceptions import InvalidHandshake
    except ImportError:
        raise MissingDependencyError(
            "workers.backend = \"server\" needs websockets: pip install 'gem-core[server]'."
        ) from None
    url = socket_url(session_path(address, environment)) + session_query(parameters)
    connector = connecting(url, **connect_options(url))
    # The token is for this address only: where it redirects to is not asked.
    connector.process_redirect = lambda error: error
    try:
        return AsyncClient(address, await connector)
    except (InvalidHandshake, OSError, asyncio.TimeoutError) as error:
        raise not_connected(address, error) from None


def _how(error: Any) -> str:
    """Return why a connection ended, from the server's or this side's closing."""
    closing = error.rcvd or error.sent
    if closing is None:
        return "it ended without a word"
    if closing.code == _TOO_BIG:
        return "the message was too big; --message-bytes of the server sets how big one may be"
    return f"code {closing.code}{f', {closing.reason}' if closing.reason else ''}"
