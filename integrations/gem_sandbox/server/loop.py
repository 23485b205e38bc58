"""The event loop of the server: descriptors that do not block, and messages on sockets."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Callable
from typing import Any

MOST = 256 << 20
"""Bytes of a message; a longer one ends the connection."""
_GONE = select.POLLHUP | select.POLLERR
READ = select.POLLIN | _GONE
_WRITE = select.POLLOUT


class Loop:
    """Calls a handler for each descriptor that has something to read or can be written.

    A handler may close other descriptors and open new ones, which get the numbers that became
    free. What was seen of a number before is then no event of the new descriptor.
    """

    def __init__(self) -> None:
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._new: set[int] = set()  # watched since the last look at what has happened

    def watch(self, descriptor: int, events: int, handler: Callable[[int], None]) -> None:
        """Call ``handler(events)`` when one of ``events`` holds."""
        if descriptor not in self._handlers:
            self._new.add(descriptor)
        self._poll.register(descriptor, events)
        self._handlers[descriptor] = handler

    def forget(self, descriptor: int) -> None:
        """Stop watching; before the descriptor is closed."""
        self._poll.unregister(descriptor)
        del self._handlers[descriptor]

    def turn(self, seconds: float | None) -> bool:
        """Wait for something to happen and handle it; return whether something happened."""
        events = self._poll.poll(None if seconds is None else max(0.0, 1000 * seconds + 0.5))
        self._new.clear()
        for descriptor, event in events:
            handler = self._handlers.get(descriptor)
            # An earlier handler may have closed it, and its number may be another one's by now.
            if handler is not None and descriptor not in self._new:
                handler(event)
        return bool(events)


class JsonChannel:
    """Messages in JSON on a stream socket, each after four bytes of length.

    Args:
        loop: the event loop.
        peer: the socket; the channel closes it.
        on_message: called with each message.
        on_bytes: called with what was read, instead of ``on_message``.
        on_end: called once, when the other end has gone; the channel is closed then.
    """

    def __init__(
        self,
        loop: Loop,
        peer: socket.socket,
        *,
        on_message: Callable[[dict[str, Any]], None] | None = None,
        on_bytes: Callable[[bytes], None] | None = None,
        on_end: Callable[[], None],
    ):
        peer.setblocking(False)
        self._loop = loop
        self._peer = peer
        self._on_message = on_message
        self._on_bytes = on_bytes
        self._on_end = on_end
        self._in = bytearray()
        self._out = bytearray()
        self._events = READ
        self.closed = False
        loop.watch(peer.fileno(), READ, self._handle)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, now or as soon as the other end reads."""
        body = json.dumps(message).encode()
        self._out += len(body).to_bytes(4, "little") + body
        self._write()

    def read_no_more(self) -> None:
        """Notice only that the other end has gone; what it sends stays unread, until it blocks."""
        self._events = _GONE

    def send_descriptors(self, descriptors: list[int]) -> None:
        """Send open descriptors with one byte; everything before must have been read."""
        socket.send_fds(self._peer, [b"d"], descriptors)

    def close(self) -> None:
        """Close the socket."""
        if not self.closed:
            self.closed = True
            self._loop.forget(self._peer.fileno())
            self._peer.close()

    def _handle(self, event: int) -> None:
        if event & _WRITE:
            self._write()
        if not self.closed and event & self._events:
            if self._events == _GONE:
                self.close()
                self._on_end()
            else:
                self._read()

    def _write(self) -> None:
        if self.closed:
            return
        try:
            while self._out:
                sent = self._peer.send(self._out[: 1 << 18])
                del self._out[:sent]
        except BlockingIOError:
            pass
        except OSError:  # the other end has gone: reading notices it
            self._out.clear()
        events = self._events | _WRITE if self._out else self._events
        self._loop.watch(self._peer.fileno(), events, self._handle)

    def _read(self) -> None:
        try:
            part = self._peer.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self.close()
            self._on_end()
        elif self._on_bytes is not None:
            self._on_bytes(part)
        else:
            self._in += part
            self._messages()

    def _messages(self) -> None:
        while not self.closed and len(self._in) >= 4:
            size = int.from_bytes(self._in[:4], "little")
            if size > MOST:
                self.close()
                self._on_end()
            if self.closed or len(self._in) < 4 + size:
                return
            body = bytes(self._in[4 : 4 + size])
            del self._in[: 4 + size]
            assert self._on_message is not None
            self._on_message(json.loads(body))
