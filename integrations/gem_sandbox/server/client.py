"""One connection of a client: a single call, or a session with many.

Messages to the server:
    ``{"op": "run", "code", "stdin", "names", "limits", "keep", "forks"}`` runs a program; with
    ``keep`` the interpreter stays for the next call on this connection.
    ``{"op": "branch", "of": number}`` makes this connection a copy of another one's interpreter.
Each is answered by ``{"kind", "output", "seconds", "truncated", "session"}``; ``kind`` is ``None``
for success. Closing the connection ends the interpreter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import Any, Protocol

from . import child
from .interpreter import Interpreter
from .loop import JsonChannel, Loop
from .slots import Slots

_KB = 1 << 10
_MB = 1 << 20
_FIRST_LOOK = 0.01  # seconds until the disk usage is looked at
_LOOK_EVERY = 0.02
_LONG = 0.05  # seconds after which a call lets short ones pass
_BRANCH_SECONDS = 10.0
_MARK = 16  # bytes that an answer begins with
_MOST_NOISE = 1 << 20
"""Bytes that a program of a session may write where its interpreter answers."""
_LONG_RUNNING = 10  # added to the nice value of a program that runs longer than `_LONG`


class Host(Protocol):
    """What a connection uses of its server, see `server.Server`."""

    loop: Loop
    slots: Slots
    clients: dict[int, Client]
    other_tasks: int

    @property
    def programs(self) -> bool:
        """Whether programs may start processes."""

    def need_interpreter(self, client: Client) -> None:
        """Give a client an interpreter, now or as soon as a slot is free."""

    def release(self, interpreter: Interpreter) -> None:
        """End an interpreter; with the last one of its family every process of it."""


class Client:
    """A connection.

    Args:
        server: the server.
        number: its number, by which a branch names it.
        peer: its socket.

    Attributes:
        wake_at: when `tick` has something to do; ``None``: nothing is running.
        forks: whether its interpreter must be able to branch.
        closed: whether the client has gone.
    """

    def __init__(self, server: Host, number: int, peer: socket.socket):
        self.number = number
        self.wake_at: float | None = None
        self.forks = False
        self.closed = False
        self._server = server
        self._request: dict[str, Any] | None = None
        self._interpreter: Interpreter | None = None
        self._keep = False
        self._used = False
        self._exited = False
        self._frozen = False
        self._parent: Client | None = None
        self._reset()
        self._channel = JsonChannel(server.loop, peer, on_message=self._receive, on_end=self.close)

    def _reset(self) -> None:
        self._output = bytearray()
        self._truncated = False
        self._started = 0.0
        self._until = 0.0
        self._cpu_time: float | None = None
        self._most_disk = 0
        self._polite = False
        self._answer = bytearray()
        self._mark = b""
        self._noise = 0

    def close(self) -> None:
        """End the interpreter; the client has gone, or the server ends."""
        if not self.closed:
            self.closed = True
            del self._server.clients[self.number]
            self._channel.close()
            self._drop()

    def refuse(self, reason: str) -> None:
        """Answer that the call could not be started."""
        self._output += reason.encode()
        self._reply("unavailable")

    def begin(self, interpreter: Interpreter) -> None:
        """Run the program that waits in this interpreter."""
        self._interpreter = interpreter
        interpreter.on_output = self._on_output
        interpreter.on_status = self._status
        interpreter.on_end = self._on_end
        self._run()

    def tick(self, now: float) -> None:
        """Hold the deadline and the disk limit."""
        if self.wake_at is None or now < self.wake_at:
            return
        if self._exited:
            self._report_exit(now)
        elif now >= self._until:
            self._stop("timeout")
        else:
            self._look(now)

    def _receive(self, message: dict[str, Any]) -> None:
        if self._request is not None:
            self._channel.close()  # one call at a time: this is not our client
            self.close()
            return
        self._request = message
        self._reset()
        if message["op"] == "branch":
            self._branch(message["of"])
        elif self._interpreter is not None:
            self._run()
        elif self._used:
            self._reply("session_over")
        else:
            self.forks = bool(message["forks"])
            self._server.need_interpreter(self)

    def _run(self) -> None:
        assert self._request is not None and self._interpreter is not None
        self._used = True
        self._keep = bool(self._request["keep"])
        self._start(self._request["limits"]["seconds"])
        stdin = self._request["stdin"] or ""
        self._most_disk = int(self._request["limits"]["disk_mb"] * _MB) + 4 * len(stdin)
        if not self._server.slots.limit(self._interpreter.family.slot, self._most_disk):
            self._stop("disk_limit")
            return
        if self._frozen:
            self._frozen = False
            self._interpreter.thaw()
        self._mark = os.urandom(_MARK) if self._keep else b""
        added = {"other_tasks": self._server.other_tasks, "mark": self._mark.hex()}
        self._interpreter.request({**self._request, **added}, last=not self._keep)

    def _start(self, seconds: float) -> None:
        self._started = time.monotonic()
        self._until = self._started + seconds
        self._cpu_time = None
        self.wake_at = min(self._until, self._started + _FIRST_LOOK)

    def _on_output(self, part: bytes) -> None:
        if self._request is None:
            return  # a thread of a session prints between two calls
        self._output += part
        if self._request["op"] == "run":
            most = int(self._request["limits"]["output_kb"] * _KB)
            if len(self._output) > most:
                del self._output[most:]
                self._truncated = True
                self._stop("output_limit")

    def _status(self, data: bytes) -> None:
        if self._request is None:
            return
        if self._request["op"] == "branch":
            self._on_branch(data)
            return
        if self._mark:  # what a program wrote earlier is no answer to this call
            self._answer += data
            at = self._answer.find(self._mark)
            if 0 <= at < len(self._answer) - _MARK:
                self._on_answer(self._answer[at + _MARK])
            self._noise += len(data)
            del self._answer[: -2 * _MARK]
            if self._request is not None and self._noise > _MOST_NOISE:
                self._stop("killed")

    def _on_answer(self, status: int) -> None:
        """Finish a call of a session: its interpreter says that it ended, and how."""
        assert self._interpreter is not None
        self._interpreter.drain()
        if self._request is not None:  # the output was not too long
            self._finish(_kind_of_status(status, volumes=self._server.slots.volumes))

    def _on_end(self) -> None:
        """Handle the end of the interpreter, or that it closed its socket."""
        if self._request is None:
            self._drop()
            return
        assert self._interpreter is not None
        self._interpreter.drain()
        if self._request is None:
            return
        self._exited = True
        family = self._interpreter.family
        if self._interpreter.pid == family.leader:
            family.kill_one(family.leader)
        self._report_exit(time.monotonic())

    def _report_exit(self, now: float) -> None:
        """Answer as soon as the exit status is known."""
        assert self._interpreter is not None
        family = self._interpreter.family
        family.is_gone()
        status = family.exit_status
        if self._interpreter.pid != family.leader:
            status = signal.SIGKILL  # the status of a branch is its parent's
        if status is None:
            self.wake_at = now + 0.001
            return
        self._exited = False
        self._stop(_kind_of_exit(status, volumes=self._server.slots.volumes))

    def _look(self, now: float) -> None:
        """Look at the disk usage; let short calls pass a long one."""
        assert self._interpreter is not None and self._request is not None
        family = self._interpreter.family
        if self._request["op"] == "run":
            if not self._keep and not self._polite and now >= self._started + _LONG:
                self._polite = True
                with contextlib.suppress(PermissionError, ProcessLookupError):  # it only helps
                    os.setpriority(os.PRIO_PGRP, family.leader, _LONG_RUNNING)
            if not self._has_run():
                self._look_again(now)
                return
            used = self._server.slots.usage(
                family,
                several=self.forks or self._server.programs,
                most_file=int(self._request["limits"]["file_mb"] * _MB),
            )
            if used is None or used > self._most_disk:
                self._stop("disk_limit")
                return
        self._look_again(now)

    def _has_run(self) -> bool:
        """Return whether the program may have written since the last look: it used CPU time."""
        assert self._interpreter is not None
        if self.forks or self._server.programs:
            return True
        before = self._cpu_time
        self._cpu_time = self._interpreter.cpu_time()
        return self._cpu_time is None or self._cpu_time != before

    def _look_again(self, now: float) -> None:
        """Plan the next look; looking takes at most a fifth of the time."""
        took = time.monotonic() - now
        self.wake_at = min(self._until, now + max(_LOOK_EVERY, 5 * took))

    def _stop(self, kind: str | None) -> None:
        """End the interpreter and answer."""
        self._keep = False
        self._finish(kind)

    def _finish(self, kind: str | None) -> None:
        self._reply(kind)
        if not self._keep:
            self._drop()
        elif self._interpreter is not None:
            self._interpreter.freeze()
            self._frozen = True

    def _reply(self, kind: str | None) -> None:
        started = self._started or time.monotonic()
        self._request = None
        self.wake_at = None
        self._exited = False
        self._channel.send(
            {
                "kind": kind,
                "output": self._output.decode("utf-8", errors="replace"),
                "seconds": time.monotonic() - started,
                "truncated": self._truncated,
                "session": self.number,
            }
        )

    def _drop(self) -> None:
        self.wake_at = None
        if self._interpreter is not None:
            interpreter = self._interpreter
            self._interpreter = None
            self._server.release(interpreter)

    def _branch(self, number: int) -> None:
        """Ask another connection's interpreter to fork itself for this one."""
        self._used = True
        other = self._server.clients.get(number)
        parent = None if other is None else other._interpreter
        if other is None or parent is None or other._request is not None or not other.forks:
            self._output += b"only a session that can branch, and is not running, has branches"
            self._reply("session_over" if parent is None else "error")
            return
        self.forks = True
        self._keep = True
        family = parent.family
        family.branches += 1
        folder = os.path.join(self._server.slots[family.slot].folder, f"branch-{family.branches}")
        ours, theirs = socket.socketpair()
        output, printed = os.pipe()
        parent.thaw()
        self._parent = other
        parent.request({"op": "branch", "folder": folder})
        parent.send_descriptors([theirs.fileno(), printed])
        theirs.close()
        os.close(printed)
        self._start(_BRANCH_SECONDS)
        interpreter = Interpreter(self._server.loop, family, ours, output, forks=True, branch=True)
        self._interpreter = interpreter
        interpreter.on_output = self._on_output
        interpreter.on_status = self._status
        interpreter.on_end = self._on_end

    def _on_branch(self, data: bytes) -> None:
        """Take the branch's answer: a status and its process id."""
        self._answer += data
        if len(self._answer) < 5:
            return
        assert self._interpreter is not None
        pid = int.from_bytes(self._answer[1:5], "little")
        made = self._answer[0] == child.OK and self._interpreter.family.owns(pid)
        self._interpreter.pid = pid if made else 0
        parent = self._parent
        if parent is not None and parent._request is None and parent._interpreter is not None:
            parent._interpreter.freeze()
        if made:
            self._finish(None)
        else:
            self._interpreter.drain()
            self._stop("error")


def _kind_of_status(status: int, *, volumes: bool) -> str | None:
    """Return how a program ended, by its own account.

    Without volumes it may be the machine's disk that is full.
    """
    if status == child.FULL and volumes:
        return "disk_limit"
    return None if status == child.OK else "error"


def _kind_of_exit(status: int, *, volumes: bool) -> str | None:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return _kind_of_status(code, volumes=volumes)
    if -code == signal.SIGBUS and volumes:  # no space for a file that is mapped
        return "disk_limit"
    return "cpu_limit" if -code == signal.SIGXCPU else "killed"
