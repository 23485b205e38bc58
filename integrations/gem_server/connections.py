"""The connections of a server: how many there are, and how long a client may take for its part.

uvicorn limits neither: a request that never ends is not counted as one. These are its protocols of
HTTP and WebSockets with a deadline for whatever a client has begun.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gem_server.limits import ServerLimits

_FRAMES = 1024
"""Frames of one message."""
_SPARE = 1 << 20
"""Bytes that may wait for a client beside an answer."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 55\r\n\r\n"
    b'{"error": "Too many connections.", "code": "CAPACITY"}\n'
)


class _Deadline:
    """Ends a connection whose client does not finish what it has begun."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = ""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, transport: asyncio.Transport, begun: str) -> None:
        """Note what the client has begun, ``""`` for nothing; the same again is no news."""
        if begun == self._begun:
            return
        self._begun = begun
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if begun:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, transport.abort)


class HttpConnection(H11Protocol):  # type: ignore[misc]
    """A connection of HTTP: a request's head and its body have a deadline each, and so has reading.

    Attributes:
        limits: of the server; set by `connection_classes`.
    """

    limits: ServerLimits

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._sending = _Deadline(self.limits.request_s)
        self._reading = _Deadline(self.limits.request_s)
        self._upgraded = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection; one too many is told so and closed."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.write(_FULL)
            transport.close()
        self._sending.watch(transport, "head")

    def data_received(self, data: bytes) -> None:
        """Read; see the class."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        begun = {h11.IDLE: "head", h11.SEND_BODY: "body"}.get(self.conn.their_state, "")
        self._sending.watch(self.transport, "" if self._upgraded else begun)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to a `SocketConnection`."""
        self._upgraded = True
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._sending.watch(self.transport, "")
        self._reading.watch(self.transport, "")
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for a client that does not read, up to the deadline."""
        super().pause_writing()
        self._reading.watch(self.transport, "answer")

    def resume_writing(self) -> None:
        """Write again."""
        super().resume_writing()
        self._reading.watch(self.transport, "")


class SocketConnection(WebSocketsSansIOProtocol):  # type: ignore[misc]
    """A connection of a WebSocket: messages of bounded frames and time, to clients that read.

    Attributes:
        limits: of the server; set by `connection_classes`.
    """

    limits: ServerLimits

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._sending = _Deadline(self.limits.request_s)
        self._reading = _Deadline(self.limits.request_s)

    def data_received(self, data: bytes) -> None:
        """Read; see the class."""
        super().data_received(data)
        self._sending.watch(self.transport, "message" if self.frames else "")
        # Pongs to a client that does not read them, too, wait in memory.
        waiting = self.transport.get_write_buffer_size()
        if len(self.frames) > _FRAMES or waiting > self.limits.message_bytes + _SPARE:
            self.transport.abort()

    def send_receive_event_to_app(self) -> None:
        """Pass a message on; one that is not UTF-8 ends the connection, without a traceback."""
        if self.curr_msg_data_type == "text":
            try:
                (self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)).decode()
            except UnicodeDecodeError:
                self.frames.clear()
                self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._sending.watch(self.transport, "")
        self._reading.watch(self.transport, "")
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for a client that does not read, up to the deadline."""
        super().pause_writing()
        self._reading.watch(self.transport, "answer")

    def resume_writing(self) -> None:
        """Write again."""
        super().resume_writing()
        self._reading.watch(self.transport, "")


def connection_classes(
    limits: ServerLimits,
) -> tuple[type[HttpConnection], type[SocketConnection]]:
    """Return the two protocols with the limits of a server."""
    http = type("HttpConnection", (HttpConnection,), {"limits": limits})
    socket = type("SocketConnection", (SocketConnection,), {"limits": limits})
    return http, socket
