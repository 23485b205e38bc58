"""Messages between a process and its workers: pickles of lists of them, with the length in front.

Messages that follow each other quickly travel in one list: each list costs a write, a switch of
processes and a read. Builders, arguments and results are pickles inside a message: one that cannot
be read, because only the sender has its class, is the error of one call and not of the connection.

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


def pack(messages: list[Any]) -> bytes:
    """Return the bytes of some messages."""
    body = pickle.dumps(messages, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class Unpacker:
    """Puts messages together from the pieces in which they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Yield the messages whose list is complete with ``piece``."""
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
            yield from pickle.loads(body)
        del buffer[:start]
