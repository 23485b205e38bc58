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

from gem_core.execution.workers.channel import Channel
from gem_core.execution.workers.marks import Marks, create_memory

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from gem_core.execution.workers.child import main; main()"
)


class Process(Channel):
    """A worker process of this one; it is not thread-safe.

    It is the first process of a session of its own, so that what its environments start can be
    ended with it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._memory = create_memory()
        self.marks = Marks(self._memory)
        self._socket, self._theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, from a thread that lives as long as the worker is to live.

        The kernel ends a worker with the thread that started it. Nothing of this process is
        copied: neither its threads nor its locks, nor what they hold.
        """
        numbers = [self._theirs.fileno(), self._memory]
        arguments = [*map(str, numbers), str(os.getpid()), json.dumps(sys.path)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=numbers,
            env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ},
            start_new_session=True,
        )
        self._theirs.close()
        self._close_memory()

    @property
    def pid(self) -> int | None:
        """Its process id, ``None`` before it is started."""
        return None if self._process is None else self._process.pid

    def kill(self, *, ended: bool = False) -> str:
        """See `Channel.kill`."""
        self.forget()
        if self._process is None:
            return "it was not started"
        return end_session(self._process, ended=ended)

    def forget(self) -> None:
        """Close socket and memory only, as in a forked child, whose worker it is not."""
        super().forget()
        self._theirs.close()
        self._close_memory()

    def _close_memory(self) -> None:
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


def end_session(process: subprocess.Popen[bytes], *, ended: bool) -> str:
    """End a process with the session whose first one it is; return how it ended.

    ``ended``: it has ended by itself, or is about to.
    """
    if ended:
        _wait_for_end(process.pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return _how(process.wait())


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
