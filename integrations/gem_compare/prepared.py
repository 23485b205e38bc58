"""A process that has imported a trainer and begins each cell as a copy of itself.

Importing TRL takes longer than a step of the tiny profile. `PreparedProcess` pays for it once:
its program imports the modules that the trainer declares (`Trainer.shared_imports`), and each cell
is then a fork of it, which runs the same command line in the same way as a new interpreter would.
It is used on CPUs only: CUDA cannot be used in a copy of a process that has looked at it.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

_LARGEST = 1 << 18
"""Bytes of the longest message: a command line."""


class ForkedCell:
    """A running cell, with the part of the interface of `subprocess.Popen` that is used."""

    def __init__(self, pid: int, channel: socket.socket):
        self.pid = pid
        self._channel = channel
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; 1 if the prepared process ended first, so that none is known.

        Raises:
            subprocess.TimeoutExpired: the cell runs longer than ``timeout`` seconds.
        """
        if self._code is None:
            self._channel.settimeout(timeout)
            try:
                message = _receive(self._channel)
            except TimeoutError:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0) from None
            self._code = 1 if message is None else int(message["code"])
        return self._code


class PreparedProcess:
    """The prepared process of one interpreter, seen from the runner.

    Args:
        python: the interpreter of the trainer's environment.
        modules: what it imports before the first cell.
    """

    def __init__(self, python: str, modules: Sequence[str]):
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-m", __name__, str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    def start(self, arguments: Sequence[str], log: int, lock: int) -> ForkedCell | None:
        """Begin a program; ``None`` if the modules cannot be shared here.

        Then the cell has to be started as a process of its own, whose log says what is wrong.

        Args:
            arguments: a package with a ``__main__``, which calls the package's ``main``, and the
                arguments for it.
            log: file descriptor for what it prints.
            lock: file descriptor that it keeps open.
        """
        self._channel.settimeout(None)
        data = json.dumps({"arguments": list(arguments)}).encode()
        try:
            socket.send_fds(self._channel, [data], [log, lock])
        except OSError:
            return None
        message = _receive(self._channel)
        return None if message is None else ForkedCell(int(message["pid"]), self._channel)

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        self._process.terminate()
        self._process.wait()


class PreparedProcesses:
    """One prepared process for each interpreter and set of modules, made when first needed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], PreparedProcess] = {}

    def __enter__(self) -> PreparedProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for prepared in self._known.values():
            prepared.close()

    def get(self, python: str, modules: Sequence[str]) -> PreparedProcess:
        """Return the process with these modules."""
        key = (python, *modules)
        if key not in self._known:
            self._known[key] = PreparedProcess(python, modules)
        return self._known[key]


def _receive(channel: socket.socket) -> dict[str, Any] | None:
    """Return the next message; ``None`` if the other side has ended."""
    try:
        data = channel.recv(_LARGEST)
    except ConnectionError:
        return None
    message: dict[str, Any] | None = json.loads(data) if data else None
    return message


def main() -> int:
    """Import, then begin a cell for each message; in a copy, run the cell."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        import_module(name)
    if threading.active_count() > 1:
        return 1  # a copy would not have the other threads
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, _LARGEST, 2)
        if not data:
            return 0
        pid = os.fork()
        if pid == 0:
            channel.close()
            return _run_cell(json.loads(data)["arguments"], *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps({"pid": pid}).encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        channel.send(json.dumps({"code": code}).encode())


def _run_cell(arguments: list[str], log: int, lock: int) -> int:
    """Become what ``python -m`` would be; ``lock`` stays open as long as it runs."""
    program = import_module(arguments[0])
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    random.seed()  # names of temporary files, jitter: not the same in every cell
    sys.argv = [str(Path(str(program.__file__)).with_name("__main__.py")), *arguments[1:]]
    code: int = program.main()
    return code


if __name__ == "__main__":
    sys.exit(main())
