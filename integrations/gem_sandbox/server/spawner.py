"""The process that forks children, and never sees what clients send.

A child has a copy of its parent's memory, and what runs in it can read all of that. So the server
does not fork itself: its memory has the programs, the input and the output of other calls.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from typing import NoReturn

from . import child, libc
from .child import Place
from .confine import Confinement

_MOST = 1 << 16  # bytes of a message


class Spawner:
    """The process, seen from the server; it must be made before the first client connects.

    Args:
        confinement: how programs are confined.
        control: the server's control socket, which the process does not keep.
        null: descriptor of ``/dev/null``.
    """

    def __init__(self, confinement: Confinement, control: socket.socket, null: int):
        server = os.getpid()
        self._peer, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            self._peer.close()
            control.close()
            _serve(theirs, confinement, null, server)
        theirs.close()

    def fileno(self) -> int:
        """Return a descriptor that can be read when the process has gone."""
        return self._peer.fileno()

    def spawn(self, place: Place, requests: int, output: int) -> None:
        """Start a child.

        Args:
            place: where it runs.
            requests: its end of the socket on which it sends its process id, then one byte when it
                is confined, and then reads requests.
            output: what it prints to; among others, why it could not be started.

        Raises:
            OSError: the process has gone.
        """
        descriptors = [requests, output]
        if place.ruleset >= 0:
            descriptors.append(place.ruleset)
        socket.send_fds(self._peer, [json.dumps(place).encode()], descriptors)


def _serve(server: socket.socket, confinement: Confinement, null: int, pid: int) -> NoReturn:
    try:
        libc.die_with_parent(signal.SIGKILL, pid)
        while True:
            data, descriptors, _, _ = socket.recv_fds(server, _MOST, 3)
            if not data:
                break
            place = Place(*json.loads(data))
            if place.ruleset >= 0:
                place = place._replace(ruleset=descriptors[2])
            requests, output = descriptors[:2]
            try:
                _fork_twice(place, confinement, requests, output, null, pid)
            except OSError as error:
                os.write(output, f"no process could be started: {error}".encode())
            for descriptor in descriptors:
                os.close(descriptor)
    finally:
        os._exit(0)


def _fork_twice(
    place: Place, confinement: Confinement, requests: int, output: int, null: int, server: int
) -> None:
    """Fork a child that becomes the server's: it adopts those whose parent has ended."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return
    between = os.getpid()
    try:
        if os.fork() == 0:
            child.main(place, confinement, requests, output, null, (between, server))
    except OSError as error:
        os.write(output, f"no process could be started: {error}".encode())
    finally:
        os._exit(0)
