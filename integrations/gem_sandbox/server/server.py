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

from . import confine
from .child import Place
from .client import Client
from .confine import Confinement
from .held import Unseen
from .interpreter import Family, Interpreter
from .loop import READ, Loop
from .slots import Slots
from .spawner import Spawner

_TASKS_EVERY = 10.0  # seconds between two counts of the user's threads
_TASKS_MORE = 512  # threads that the user may start in between
_COLLECT_EVERY = 500  # calls
_SPARE_AGAIN = 1.0  # seconds until another try, where no process could be started


class Server:
    """Serves the control socket until its other end is closed.

    Args:
        control: the control socket.
        confinement: how programs are confined.
        slots: the slots: as many calls and sessions may run at once.
        spares: how many confined children wait for a call.

    Attributes:
        loop: the event loop.
        slots: as given.
        clients: the connections, by their number.
        other_tasks: threads of other processes that have the programs' uid.
    """

    def __init__(self, control: socket.socket, confinement: Confinement, slots: Slots, spares: int):
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._spawner = Spawner(confinement, control, null)  # before anything of a client arrives
        os.close(null)
        self.loop = Loop()
        self.slots = slots
        self.clients: dict[int, Client] = {}
        self.other_tasks = 0
        self._control = control
        self._confinement = confinement
        self._wanted_spares = spares
        self._ready: dict[bool, deque[Interpreter]] = {False: deque(), True: deque()}
        self._starting: list[Interpreter] = []
        self._waiting: deque[Client] = deque()
        self._dying: list[Family] = []
        self._tasks_counted = -_TASKS_EVERY
        self._count_tasks(time.monotonic())
        self._spares_from = 0.0
        self._connections = 0
        self._ended = False
        self._looked = False

    @property
    def programs(self) -> bool:
        """Whether programs may start processes."""
        return self._confinement.programs

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
        self.loop.watch(self._spawner.fileno(), READ, self._on_spawner_lost)
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

    def _on_spawner_lost(self, event: int) -> None:
        """End: nothing can be started any more, and the client starts another server."""
        self._ended = True

    def _serve_waiting(self) -> None:
        """Give clients the interpreters that are ready, and start those that are missing."""
        for client in list(self._waiting):
            interpreter = None if client.closed else self._take(forks=client.forks)
            if client.closed or interpreter is not None:
                self._waiting.remove(client)
            if interpreter is not None:
                client.begin(interpreter)
        for forks in (False, True):
            wanted = sum(client.forks == forks for client in self._waiting)
            coming = sum(interpreter.forks == forks for interpreter in self._starting)
            for _ in range(wanted - coming):
                if not self._start_for(forks=forks):
                    break
        while self._ready[True] and not self._waiting:  # whoever asked for it has gone
            self.release(self._ready[True].popleft())

    def _take(self, *, forks: bool) -> Interpreter | None:
        while self._ready[forks]:
            interpreter = self._ready[forks].popleft()
            if not interpreter.ended:
                return interpreter
            self.release(interpreter)
        return None

    def _start_for(self, *, forks: bool) -> bool:
        """Start a child for a client that waits; return whether there was a free slot."""
        try:
            if self._start(forks=forks, warm=False):
                return True
        except OSError as error:  # no descriptor left
            self._refuse(forks, f"no process could be started: {error}")
            return False
        if forks and self._ready[False]:
            self.release(self._ready[False].popleft())
        return False

    def _start(self, *, forks: bool, warm: bool) -> bool:
        """Have a child forked that confines itself; return whether there was a free slot.

        Raises:
            OSError: the system has no descriptor left.
        """
        slot = self.slots.take()
        if slot is None:
            return False
        place = Place(slot.folder, slot.uid, slot.ruleset, forks, warm)
        with contextlib.ExitStack() as undo:
            undo.callback(self.slots.give_back, slot.number)
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            with theirs:
                output, printed = os.pipe()
                undo.callback(os.close, output)
                try:
                    self._spawner.spawn(place, theirs.fileno(), printed)
                finally:
                    os.close(printed)
            undo.pop_all()
        interpreter = Interpreter(self.loop, Family(slot.number), ours, output, forks=forks)
        said = bytearray()  # why it could not be confined
        interpreter.on_output = said.extend
        interpreter.on_ready = lambda: self._on_start(interpreter, said)
        interpreter.on_end = lambda: self._on_failure(interpreter, said)
        self._starting.append(interpreter)
        return True

    def _on_start(self, interpreter: Interpreter, said: bytearray) -> None:
        if not self._looked:
            try:
                self.slots.try_to_look(interpreter.family)
            except Unseen as error:
                said += f"what programs hold open cannot be seen: {error}".encode()
                self._on_failure(interpreter, said)
                return
            self._looked = True
        self._starting.remove(interpreter)
        interpreter.on_end = lambda: None
        self._ready[interpreter.forks].append(interpreter)

    def _on_failure(self, interpreter: Interpreter, said: bytearray) -> None:
        """Refuse a client whose child could not be confined: it has run no program."""
        interpreter.on_end = lambda: None
        interpreter.drain()
        self._starting.remove(interpreter)
        self.release(interpreter)
        self._spares_from = time.monotonic() + _SPARE_AGAIN
        self._refuse(interpreter.forks, said.decode("utf-8", errors="replace"))

    def _refuse(self, forks: bool, reason: str) -> None:
        for client in self._waiting:
            if client.forks == forks and not client.closed:
                self._waiting.remove(client)
                client.refuse(reason)
                return

    def _bury(self) -> None:
        """Empty the slots whose processes are all gone."""
        left = []
        for family in self._dying:
            if family.is_gone():
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
                self._start(forks=False, warm=True)
            except OSError:  # a call would report it
                self._spares_from = now + _SPARE_AGAIN
        if self._connections % _COLLECT_EVERY == 0:
            gc.collect()

    def _lacks_spare(self, now: float) -> bool:
        """Return whether a spare child should be made in an idle moment."""
        coming = len(self._ready[False]) + len(self._starting)
        if self._waiting or coming >= self._wanted_spares:
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
        for interpreter in [*self._ready[False], *self._ready[True], *self._starting]:
            self.release(interpreter)
        until = time.monotonic() + 5
        while self._dying and time.monotonic() < until:
            self._bury()
            time.sleep(0.001)
        self.slots.close()
