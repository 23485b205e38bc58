"""Messages between a process and its workers: pickles with their length in front.

Arguments and results are pickles inside the message: one that cannot be read, because only the
sender has its class, is the error of one call and not of the connection.

A worker runs the code of this project and of its user with the user's rights, as the parent does;
programs that an agent wrote run in the sandbox (SECURITY.md), never in a worker itself.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import Any

PIECE = 1 << 18
"""Bytes that are read at once."""
_LENGTH = struct.Struct("<Q")


def pack(message: Any) -> bytes:
    """Return the bytes of a message."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class Unpacker:
    """Puts messages together from the pieces in which they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Yield the messages that are complete with ``piece``."""
        buffer = self._buffer
        buffer += piece
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(buffer, start)
            end = start + _LENGTH.size + size
            if len(buffer) < end:
                break
            body = bytes(memoryview(buffer)[start + _LENGTH.size : end])
            start = end
            yield pickle.loads(body)
        del buffer[:start]
