"""A server process, seen from the client: start it, connect to it, end it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from gem_core.execution.sandbox.results import SandboxError, SandboxLimits, SandboxUnavailable
from gem_sandbox.connection import Connection
from gem_sandbox.launch import Options, command
from gem_sandbox.messages import request
from gem_sandbox.processes import end_session
from gem_sandbox.server import folders

_PREFIX = "gem-core-sandbox-"
_LOCK = "lock"
_START_SECONDS = 20.0
_PULL_SECONDS = 300.0  # a container's image may have to be loaded first
_END_SECONDS = 5.0
_ENVIRONMENT = {
    "PATH": os.defpath,
    "LANG": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip
"""The environment of a server and its programs; nothing of the user's own is passed on."""


class ServerProcess:
    """A running server.

    Args:
        options: how it is started.

    Attributes:
        options: as given.
        described: what it uses: version of Landlock, users of their own.

    Raises:
        SandboxUnavailable: it cannot run here; the message is the server's reason.
    """

    def __init__(self, options: Options):
        self.options = options
        self._folder, self._lock = _make_folder()
        self._owner = os.getpid()
        try:
            self._process, self._control = self._start()
            self.described = self._wait_until_ready()
            self._try()
        except BaseException:
            self.close()
            raise

    def connect(self) -> socket.socket:
        """Return a new connection to the server.

        Raises:
            SandboxError: the server has gone.
        """
        # Its children hold the control socket a moment longer than the server lives.
        if os.getpid() == self._owner and self._process.poll() is not None:
            raise SandboxError("The sandbox's server has ended.")
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._control, [b"c"], [theirs.fileno()])
        except OSError as error:
            ours.close()
            raise SandboxError(f"The sandbox's server has gone: {error}.") from None
        return ours

    @property
    def pid(self) -> int:
        """Process id of the server, or of the program that started it."""
        return self._process.pid

    def close(self, *, kill: bool = False) -> None:
        """End the server, every program, and remove their files.

        Args:
            kill: whether to end it at once, because it does not answer.
        """
        if os.getpid() != self._owner:  # a fork of the process that started it
            return
        if hasattr(self, "_process"):
            self._control.close()
            if kill:
                self._process.kill()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            assert self._process.stderr is not None
            self._process.stderr.close()
            end_session(self._process.pid)
        _remove_folder(self._folder)
        os.close(self._lock)

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        container = self.options.how in ("docker", "podman")
        path = os.path.join(self._folder, "control") if container else None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = command(self.options, self._folder, path)
        if path is not None:
            ours.close()
            ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.bind(path)
            ours.listen(1)
        with theirs:
            try:
                process = subprocess.Popen(
                    arguments,
                    stdin=subprocess.DEVNULL if container else theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    cwd="/",
                    # An engine's own command needs the user's settings, and passes none of them on.
                    env=None if container else _ENVIRONMENT,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise SandboxUnavailable(self._failure(str(error))) from None
        return process, ours

    def _wait_until_ready(self) -> dict[str, Any]:
        if self.options.how in ("docker", "podman"):
            self._accept()
        else:
            _wait_for(self._control, _START_SECONDS)
        try:
            message = self._control.recv(1 << 16)
        except (ConnectionError, BlockingIOError):
            message = b""
        if not message:
            raise SandboxUnavailable(self._failure(self._stderr()))
        reply = json.loads(message)
        if "error" in reply:
            raise SandboxUnavailable(self._failure(reply["error"]))
        described: dict[str, Any] = reply["ready"]
        return described

    def _try(self) -> None:
        """Run a program: a level is offered where one really runs."""
        connection = Connection(self.connect())
        limits = SandboxLimits(seconds=_START_SECONDS)
        message = request("print(6 * 7)", None, None, limits, keep=False, forks=False)
        try:
            answer = connection.ask(message, limits.seconds)
        except SandboxError as error:
            raise SandboxUnavailable(self._failure(str(error).rstrip("."))) from None
        finally:
            connection.close()
        if answer["output"] != "42\n":
            lines = answer["output"].strip().splitlines() or [str(answer["kind"])]
            raise SandboxUnavailable(self._failure(f"no program runs: {lines[-1]}"))

    def _accept(self) -> None:
        listening = self._control
        until = _PULL_SECONDS
        while not _wait_for(listening, 0.1):
            until -= 0.1
            if self._process.poll() is not None or until < 0:
                raise SandboxUnavailable(self._failure(self._stderr()))
        self._control, _ = listening.accept()
        listening.close()

    def _stderr(self) -> str:
        assert self._process.stderr is not None
        if self._process.poll() is None:
            self._process.kill()
        text = self._process.stderr.read().decode(errors="replace").strip()
        lines = text.splitlines() or ["it ended without a message"]
        # An engine says first what is wrong; Python says it last.
        return lines[0 if self.options.how in ("docker", "podman") else -1]

    def _failure(self, reason: str) -> str:
        level = self.options.level
        return f"The sandbox level {level!r} ({self.options.how}) cannot run here: {reason}."


def _wait_for(peer: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _make_folder() -> tuple[str, int]:
    """Return a new private folder and the descriptor whose lock says that it is in use.

    Not by `filelock`, which locks a file by its name: here it is locked before it has that name.
    """
    parent = _parent()
    sweep(parent)
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    new = os.path.join(folder, "new")
    lock = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(new, os.path.join(folder, _LOCK))  # `sweep` never sees it without the lock
    return folder, lock


def _parent() -> str:
    """Return where folders are made: in memory, where there is enough of it."""
    memory = "/dev/shm"
    if os.access(memory, os.W_OK | os.X_OK) and shutil.disk_usage(memory).free > 1 << 30:
        return memory
    return tempfile.gettempdir()


def sweep(parent: str) -> int:
    """Remove the folders of clients that ended without doing it; return how many.

    A client holds a lock on its folder, so that also one in another container is left alone.
    """
    removed = 0
    for path in Path(parent).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # another user's, or just being made
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_folder(str(path))
            removed += 1
        except OSError:
            pass
        finally:
            os.close(lock)
    return removed


def _remove_folder(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        folders.empty(folder)
        os.rmdir(folder)
