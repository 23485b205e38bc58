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

from .loop import Channel, Loop

_READ = 1 << 16
_MOST_READS = 64


class Family:
    """The processes of one slot: one process group, which the server ends as a whole.

    A program cannot leave its process group: ``setpgid`` and ``setsid`` are refused.

    Args:
        slot: number of the slot whose folder and user the processes have.
        leader: process id of the first one, which is the id of the group.

    Attributes:
        members: the interpreters that are connected; more than one only after a branch.
        branches: how many branches there have been, which numbers their folders.
        exit_status: of the first process, as `os.waitpid` returns it; ``None`` before its end.
    """

    def __init__(self, slot: int, leader: int):
        self.slot = slot
        self.leader = leader
        self.members: set[Interpreter] = set()
        self.branches = 0
        self.exit_status: int | None = None

    def kill(self) -> None:
        """End every process of the family."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.leader, signal.SIGKILL)

    def kill_one(self, pid: int) -> None:
        """End one process, if it belongs to the family."""
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == self.leader:
                os.kill(pid, signal.SIGKILL)

    def signal_one(self, pid: int, number: int) -> None:
        """Send a signal to one process, or to all where only one interpreter is left."""
        with contextlib.suppress(ProcessLookupError):
            if len(self.members) == 1:
                os.killpg(self.leader, number)
            elif os.getpgid(pid) == self.leader:
                os.kill(pid, number)

    def gone(self) -> bool:
        """Return whether no process is left; those that have ended are removed from the system."""
        while True:
            try:
                pid, status = os.waitpid(-self.leader, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.leader:
                self.exit_status = status


class Interpreter:
    """One process that runs programs.

    Args:
        loop: the event loop.
        family: the processes it belongs to.
        pid: its process id.
        requests: our end of its socket.
        output: our end of the pipe that it prints to.

    Attributes:
        on_output: called with each part of the output.
        on_status: called with the bytes that it answers.
        on_end: called when it has ended or closed its socket.
    """

    def __init__(self, loop: Loop, family: Family, pid: int, requests: socket.socket, output: int):
        self.family = family
        self.pid = pid
        self.on_output: Callable[[bytes], None] = _ignore
        self.on_status: Callable[[bytes], None] = _ignore
        self.on_end: Callable[[], None] = _nothing
        self._loop = loop
        self._output = output
        self._channel = Channel(
            loop,
            requests,
            on_bytes=lambda data: self.on_status(data),
            on_end=lambda: self.on_end(),
        )
        os.set_blocking(output, False)
        loop.watch(output, select.POLLIN, self._readable)
        family.members.add(self)

    @property
    def ended(self) -> bool:
        """Whether the process has ended or closed its socket."""
        return self._channel.closed

    def request(self, message: dict[str, Any]) -> None:
        """Send a request."""
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

    def close(self) -> None:
        """Close our ends; the process, if it waits for a request, ends."""
        self.family.members.discard(self)
        self._channel.close()
        self._close_output()

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
