"""A child process, seen from the server: its requests, its answers, its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from .loop import JsonChannel, Loop

_READ = 1 << 16
_MOST_READS = 64
_HELLO = 5  # bytes: the process id, and that it is ready


class Family:
    """The processes of one slot: one process group, which the server ends as a whole.

    A program cannot leave its process group: ``setpgid`` and ``setsid`` are refused.

    Args:
        slot: number of the slot whose folder and user the processes have.

    Attributes:
        leader: process id of the first one, which is the id of the group; 0: not known yet.
        members: the interpreters that are connected; more than one only after a branch.
        branches: how many branches there have been, which numbers their folders.
        ending: processes that were ended, and may hold files for a moment.
        unseen: how often the server could not look at a process, by its id.
        exit_status: of the first process, as `os.waitpid` returns it; ``None`` before its end.
    """

    def __init__(self, slot: int):
        self.slot = slot
        self.leader = 0
        self.members: set[Interpreter] = set()
        self.branches = 0
        self.ending: set[int] = set()
        self.unseen: dict[int, int] = {}
        self.exit_status: int | None = None

    def kill(self) -> None:
        """End every process of the family."""
        self._signal_all(signal.SIGKILL)

    def owns(self, pid: int) -> bool:
        """Return whether a process belongs to the family; ``pid`` may be any number."""
        try:
            return pid > 0 and os.getpgid(pid) == self.leader
        except (ProcessLookupError, OverflowError):
            return False

    def kill_one(self, pid: int) -> None:
        """End one process, if it belongs to the family."""
        with contextlib.suppress(ProcessLookupError):
            if self.owns(pid):
                self.ending.add(pid)
                os.kill(pid, signal.SIGKILL)

    def signal_one(self, pid: int, number: int) -> None:
        """Send a signal to one process, or to all where only one interpreter is left."""
        with contextlib.suppress(ProcessLookupError):
            if len(self.members) == 1:
                self._signal_all(number)
            elif self.owns(pid):
                os.kill(pid, number)

    def is_gone(self) -> bool:
        """Return whether no process is left; those that have ended are removed from the system."""
        while self.leader:
            try:
                pid, status = os.waitpid(-self.leader, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.leader:
                self.exit_status = status
        return True

    def _signal_all(self, number: int) -> None:
        if self.leader:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.leader, number)


class Interpreter:
    """One process that runs programs.

    Args:
        loop: the event loop.
        family: the processes it belongs to.
        requests: our end of its socket.
        output: our end of the pipe that it prints to.
        forks: whether it may fork, which a branch needs.
        branch: whether it is a branch, whose first bytes are an answer.

    Attributes:
        pid: its process id; 0: not known yet.
        on_ready: called when it is confined and waits for a request.
        on_output: called with each part of the output.
        on_status: called with the bytes that it answers.
        on_end: called when it has ended or closed its socket.
    """

    def __init__(
        self,
        loop: Loop,
        family: Family,
        requests: socket.socket,
        output: int,
        *,
        forks: bool,
        branch: bool = False,
    ):
        self.family = family
        self.forks = forks
        self.pid = 0
        self.on_ready: Callable[[], None] = _nothing
        self.on_output: Callable[[bytes], None] = _ignore
        self.on_status: Callable[[bytes], None] = _ignore
        self.on_end: Callable[[], None] = _nothing
        self._loop = loop
        self._output = output
        self._exit = -1
        self._hello = bytes(_HELLO) if branch else b""
        self._channel = JsonChannel(
            loop,
            requests,
            on_bytes=self._on_data,
            on_end=lambda: self.on_end(),
        )
        os.set_blocking(output, False)
        loop.watch(output, select.POLLIN, self._readable)
        family.members.add(self)

    @property
    def ended(self) -> bool:
        """Whether the process has ended or closed its socket."""
        return self._channel.closed

    def request(self, message: dict[str, Any], *, last: bool = False) -> None:
        """Send a request; the ``last`` one is answered by the process's end alone."""
        if last:
            self._channel.read_no_more()
        self._channel.send(message)

    def send_descriptors(self, descriptors: list[int]) -> None:
        """Send open descriptors with the request before."""
        self._channel.send_descriptors(descriptors)

    def freeze(self) -> None:
        """Stop the process: threads of a session do not run on between two calls."""
        self.family.signal_one(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the process run again."""
        self.family.signal_one(self.pid, signal.SIGCONT)

    def cpu_time(self) -> float | None:
        """Return the CPU seconds that the process has used; ``None`` where it has ended."""
        of_process = 2  # the kernel's number for the clock of a process, see clock_getcpuclockid(3)
        try:
            return time.clock_gettime((~self.pid << 3) | of_process)
        except OSError:
            return None

    def drain(self) -> None:
        """Read what was printed before the process answered."""
        for _ in range(_MOST_READS):  # a thread of a session may print on and on
            if self._output < 0 or not self._read_output():
                return

    def watch_exit(self) -> None:
        """Call ``on_end`` also when the process has ended but others hold its socket."""
        try:
            self._exit = os.pidfd_open(self.pid)
        except OSError:  # before Linux 5.3
            return
        self._loop.watch(self._exit, select.POLLIN, lambda event: self._on_exit())

    def close(self) -> None:
        """Close our ends; the process, if it waits for a request, ends."""
        self.family.members.discard(self)
        self._channel.close()
        self._close_output()
        self._close_exit()

    def _on_exit(self) -> None:
        self._close_exit()
        self._channel.close()
        self.on_end()

    def _close_exit(self) -> None:
        if self._exit >= 0:
            self._loop.forget(self._exit)
            os.close(self._exit)
            self._exit = -1

    def _on_data(self, data: bytes) -> None:
        """Take the process id and the byte that says that it is ready; then answers to requests."""
        if len(self._hello) == _HELLO:
            self.on_status(data)
            return
        self._hello += data
        if len(self._hello) >= 4 and not self.pid:
            self.pid = self.family.leader = int.from_bytes(self._hello[:4], "little")
        if len(self._hello) == _HELLO:
            self.watch_exit()
            self.on_ready()

    def _close_output(self) -> None:
        if self._output >= 0:
            self._loop.forget(self._output)
            os.close(self._output)
            self._output = -1

    def _readable(self, event: int) -> None:
        self._read_output()

    def _read_output(self) -> bool:
        """Read a part; return whether there was one."""
        try:
            part = os.read(self._output, _READ)
        except BlockingIOError:
            return False
        if not part:  # every process has closed it
            self._close_output()
            return False
        self.on_output(part)
        return True


def _ignore(data: bytes) -> None:
    """Stand for a handler while no call is running."""


def _nothing() -> None:
    """Stand for a handler while no call is running."""
