"""One worker process as its parent sees it: start, bytes in and out, end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from gem_core.workers.messages import PIECE, Unpacker, pack

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from gem_core.workers.child import main; main()"
)


class Process:
    """A worker process; it is not thread-safe.

    It is the first process of a session of its own, so that what its environments start can be
    ended with it.

    Attributes:
        ready: whether it has begun to serve.
    """

    def __init__(self) -> None:
        self.ready = False
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._unpacker = Unpacker()
        self._unsent: deque[memoryview] = deque()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, from a thread that lives as long as the worker is to live.

        The kernel ends a worker with the thread that started it. Nothing of this process is
        copied: neither its threads nor its locks, nor what they hold.
        """
        number = self._theirs.fileno()
        arguments = [str(number), str(os.getpid()), json.dumps(sys.path)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=[number],
            env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ},
            start_new_session=True,
        )
        self._theirs.close()

    @property
    def pid(self) -> int | None:
        """Its process id, ``None`` before it is started."""
        return None if self._process is None else self._process.pid

    def fileno(self) -> int:
        """Return the number of the socket, for a selector."""
        return self._ours.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait until the worker reads."""
        return bool(self._unsent)

    def send(self, message: Any) -> None:
        """Send a message as far as the worker reads; the rest is sent by `flush`."""
        self._unsent.append(memoryview(pack(message)))
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the worker reads; a worker that has ended reads nothing."""
        while self._unsent:
            try:
                sent = self._ours.send(self._unsent[0])
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
        while True:
            try:
                piece = self._ours.recv(PIECE)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if not piece:
                raise EOFError
            yield from self._unpacker.feed(piece)

    def kill(self, *, ended: bool = False) -> str:
        """End it with everything that it started.

        Args:
            ended: whether it has ended by itself, or is about to.

        Returns:
            How it ended, for messages.
        """
        self.forget()
        process = self._process
        if process is None:
            return "it was not started"
        if ended:
            _wait_for_end(process.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        return _how(process.wait())

    def forget(self) -> None:
        """Close the socket only, as in a forked child, whose worker it is not."""
        self._ours.close()
        self._theirs.close()


def _wait_for_end(pid: int) -> None:
    """Wait until a process that has closed its socket has ended, at most 0.05 s; not reaped yet."""
    for _ in range(50):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return
        time.sleep(0.001)


def _how(status: int) -> str:
    if status >= 0:
        return f"it exited with status {status}"
    with contextlib.suppress(ValueError):
        return f"it was ended by {signal.Signals(-status).name}"
    return f"it was ended by signal {-status}"
