"""Spare children, calls in progress, and the slots that are being emptied."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import time
from collections import deque
from typing import Any

from . import child, confine
from .client import Client
from .confine import Confinement
from .interpreter import Family, Interpreter
from .loop import Loop
from .slots import Slots

_TASKS_EVERY = 10.0  # seconds between two counts of the user's threads
_TASKS_MORE = 512  # threads that the user may start in between
_COLLECT_EVERY = 500  # calls
_SPARE_AGAIN = 1.0  # seconds until another try, where no process could be started


class Server:
    """Serves the control socket until its other end is closed.

    Args:
        control: the control socket.
        confinement: how programs are confined.
        folder: where the slots' folders are made.
        slots: how many calls and sessions may run at once.
        spares: how many confined children wait for a call.

    Attributes:
        loop: the event loop.
        slots: the slots.
        clients: the connections, by their number.
        other_tasks: threads of other processes that have the programs' uid.
    """

    def __init__(
        self, control: socket.socket, confinement: Confinement, folder: str, slots: int, spares: int
    ):
        self.loop = Loop()
        self.slots = Slots(confinement, folder, slots)
        self.clients: dict[int, Client] = {}
        self.other_tasks = 0
        self._control = control
        self._confinement = confinement
        self._wanted_spares = spares
        self._spares: deque[Interpreter] = deque()
        self._waiting: deque[Client] = deque()
        self._dying: list[Family] = []
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._tasks_counted = -_TASKS_EVERY
        self._count_tasks(time.monotonic())
        self._spares_from = 0.0
        self._connections = 0
        self._ended = False

    @property
    def described(self) -> dict[str, Any]:
        """What this server uses, for the client."""
        return {
            "landlock": self._confinement.landlock,
            "own_user": self._confinement.own_user,
        }

    def serve(self) -> None:
        """Serve until the client has gone; then end every program and remove the folders."""
        self.loop.watch(self._control.fileno(), select.POLLIN | select.POLLHUP, self._connect)
        while not self._ended:
            idle = not self.loop.turn(self._pause())
            now = time.monotonic()
            for client in list(self.clients.values()):
                client.tick(now)
            self._bury()
            self._serve_waiting()
            if idle:
                self._prepare(now)
        self._close()

    def need_interpreter(self, client: Client) -> None:
        """Give a client an interpreter, now or as soon as a slot is free."""
        self._waiting.append(client)
        self._serve_waiting()

    def release(self, interpreter: Interpreter) -> None:
        """End an interpreter; with the last one of its family every process of it."""
        family = interpreter.family
        interpreter.close()
        if family.members:
            family.kill_one(interpreter.pid)
        else:
            family.kill()
            self._dying.append(family)

    def _pause(self) -> float | None:
        """Return the seconds until something is to be done."""
        if self._lacks_spare(time.monotonic()):
            return 0.0
        if self._dying:
            return 0.001
        times = [client.wake_at for client in self.clients.values() if client.wake_at is not None]
        if times:
            return max(0.0, min(times) - time.monotonic())
        return None

    def _connect(self, event: int) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 64, 4)
        except BlockingIOError:
            return
        except ConnectionError:
            data, descriptors = b"", []
        if not data:
            self._ended = True
            return
        for descriptor in descriptors:
            self._connections += 1
            peer = socket.socket(fileno=descriptor)
            self.clients[self._connections] = Client(self, self._connections, peer)

    def _serve_waiting(self) -> None:
        while self._waiting:
            client = self._waiting[0]
            if client.closed:
                self._waiting.popleft()
                continue
            try:
                interpreter = self._take(forks=client.forks)
            except OSError as error:  # no process or descriptor left
                self._waiting.popleft()
                client.refuse(f"no process could be started: {error}")
                continue
            if interpreter is None:
                return
            self._waiting.popleft()
            client.begin(interpreter)

    def _take(self, *, forks: bool) -> Interpreter | None:
        if forks:
            return self._spawn(forks=True, warm=False)
        while self._spares:
            interpreter = self._spares.popleft()
            if not interpreter.ended:
                return interpreter
            self.release(interpreter)
        return self._spawn(forks=False, warm=False)

    def _spawn(self, *, forks: bool, warm: bool) -> Interpreter | None:
        """Fork a child that confines itself and waits for a call; ``None``: no slot is free.

        Raises:
            OSError: the system has no process or descriptor left.
        """
        slot = self.slots.take()
        if slot is None:
            return None
        place = child.Place(slot.folder, slot.uid, slot.ruleset, forks, warm)
        with contextlib.ExitStack() as undo:
            undo.callback(self.slots.give_back, slot.number)
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            with theirs:
                output, printed = os.pipe()
                undo.callback(os.close, output)
                try:
                    pid = os.fork()
                    if pid == 0:
                        child.main(place, self._confinement, theirs.fileno(), printed, self._null)
                finally:
                    os.close(printed)
            undo.pop_all()
        os.setpgid(pid, pid)
        return Interpreter(self.loop, Family(slot.number, pid), pid, ours, output)

    def _bury(self) -> None:
        """Empty the slots whose processes are all gone."""
        left = []
        for family in self._dying:
            if family.gone():
                self.slots.give_back(family.slot)
            else:
                family.kill()  # one may have been forked while the others were ended
                left.append(family)
        self._dying = left

    def _prepare(self, now: float) -> None:
        """Use an idle moment."""
        self._count_tasks(now)
        if self._lacks_spare(now):
            try:
                interpreter = self._spawn(forks=False, warm=True)
            except OSError:  # a call would report it
                interpreter = None
                self._spares_from = now + _SPARE_AGAIN
            if interpreter is not None:
                self._spares.append(interpreter)
        if self._connections % _COLLECT_EVERY == 0:
            gc.collect()

    def _lacks_spare(self, now: float) -> bool:
        """Return whether a spare child should be made in an idle moment."""
        if self._waiting or len(self._spares) >= self._wanted_spares:
            return False
        return self.slots.any_free and now >= self._spares_from

    def _count_tasks(self, now: float) -> None:
        """Count the threads of the user, where they count against a program's limit."""
        if not self._confinement.own_user and now > self._tasks_counted + _TASKS_EVERY:
            self._tasks_counted = now
            self.other_tasks = confine.tasks_of_user() + _TASKS_MORE

    def _close(self) -> None:
        for client in list(self.clients.values()):
            client.close()
        for interpreter in self._spares:
            self.release(interpreter)
        until = time.monotonic() + 5
        while self._dying and time.monotonic() < until:
            self._bury()
            time.sleep(0.001)
        self.slots.close()
