"""Connections whose bytes a test writes itself."""

from __future__ import annotations

import socket
import struct
import time

LATEST_S = 60.0
"""A connection that is open for longer is taken to stay open."""
_KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def connect(port: int, data: bytes = b"") -> socket.socket:
    """Return a connection on which some bytes were sent."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=LATEST_S)
    connection.sendall(data)
    return connection


def rest(connection: socket.socket) -> bytes:
    """Return what comes until the server closes.

    Raises:
        TimeoutError: it does not.
    """
    received = b""
    until = time.monotonic() + LATEST_S
    with connection:
        try:
            while part := connection.recv(1 << 16):
                received += part
                if time.monotonic() > until:
                    raise TimeoutError("the connection stays open")
        except ConnectionResetError:
            pass
    return received


def upgrade(port: int, path: str) -> socket.socket:
    """Return a WebSocket after its handshake."""
    head = (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {_KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    connection = connect(port, head.encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        byte = connection.recv(1)
        assert byte, f"the server closed the connection after {answer!r}"
        answer += byte
    assert answer.startswith(b"HTTP/1.1 101"), answer
    return connection


def frame(code: int, payload: bytes, *, final: bool = True, masked: bool = True) -> bytes:
    """Return a frame: code 0 continues, 1 is text, 2 bytes, 8 close, 9 ping, 10 pong."""
    length = len(payload)
    head = bytes([(0x80 if final else 0) | code])
    mask = 0x80 if masked else 0
    if length < 126:
        head += bytes([mask | length])
    elif length < 1 << 16:
        head += bytes([mask | 126]) + struct.pack("!H", length)
    else:
        head += bytes([mask | 127]) + struct.pack("!Q", length)
    return head + (b"\0\0\0\0" if masked else b"") + payload
