"""Bytes to and from one worker, wherever it runs."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any

from gem_core.execution.workers.marks import Marks
from gem_core.execution.workers.messages import PIECE, Unpacker, pack


class Channel(ABC):
    """A worker as its pool sees it; it is not thread-safe.

    Attributes:
        ready: whether it has begun to serve.
        marks: the calls that it is running; ``None``: it tells by messages.
    """

    def __init__(self) -> None:
        self.ready = False
        self.marks: Marks | None = None
        self._socket: socket.socket | None = None
        self._unpacker = Unpacker()
        self._messages: list[Any] = []
        self._unsent: deque[memoryview] = deque()

    @abstractmethod
    def start(self) -> None:
        """Start the worker, from a thread that lives as long as the worker is to live."""

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """Its process id, ``None`` before it is started."""

    @abstractmethod
    def kill(self, *, ended: bool = False) -> str:
        """End it with everything that it started.

        Args:
            ended: whether it has ended by itself, or is about to.

        Returns:
            How it ended, for messages.
        """

    def fileno(self) -> int:
        """Return the number of the socket, for a selector; -1 while there is none."""
        return -1 if self._socket is None else self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait until the worker reads."""
        return bool(self._unsent or self._messages)

    @property
    def wants_to_write(self) -> bool:
        """Whether bytes wait for a worker that is connected."""
        return self._socket is not None and self.has_unsent

    def send(self, message: Any) -> None:
        """Add a message to what `flush` sends."""
        self._messages.append(message)

    def flush(self) -> None:
        """Send what waits, as far as the worker reads; a worker that has ended reads nothing."""
        if self._socket is None:
            return
        if self._messages:
            self._unsent.append(memoryview(pack(self._messages)))
            self._messages = []
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent[0])
            except BlockingIOError:
                return
            except OSError:  # it has ended, which `receive` finds out
                self._unsent.clear()
                return
            if sent == len(self._unsent[0]):
                self._unsent.popleft()
            else:
                self._unsent[0] = self._unsent[0][sent:]

    def receive(self) -> Iterator[Any]:
        """Yield the messages that have arrived.

        Raises:
            EOFError: the worker has ended.
        """
        while self._socket is not None:
            try:
                piece = self._socket.recv(PIECE)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if not piece:
                raise EOFError
            yield from self._unpacker.feed(piece)

    def forget(self) -> None:
        """Close what is open here only, as in a forked child, whose worker it is not."""
        if self._socket is not None:
            self._socket.close()
