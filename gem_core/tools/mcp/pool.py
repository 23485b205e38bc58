"""`McpPool`: sessions that are kept open and used again."""

from __future__ import annotations

import atexit
import os
import threading

from gem_core.tools.mcp.session import McpServer, McpSession

_MOST_IDLE = 16


class McpPool:
    """Lends sessions with one server. May be used from many threads.

    Args:
        server: the server.
        most_idle: sessions that are kept open while nobody uses them.

    Attributes:
        server: as given.
    """

    def __init__(self, server: McpServer, *, most_idle: int = _MOST_IDLE):
        self.server = server
        self._most_idle = most_idle
        self._idle: list[McpSession] = []
        self._lock = threading.Lock()

    def lease(self) -> McpSession:
        """Return a session that nobody else uses.

        Raises:
            McpError: the server cannot be used.
        """
        while True:
            with self._lock:
                session = self._idle.pop() if self._idle else None
            if session is None:
                return McpSession(self.server)
            if session.alive:
                return session
            session.close()

    def give_back(self, session: McpSession, *, used_up: bool = False) -> None:
        """Take a session back.

        Args:
            session: one that `lease` returned.
            used_up: whether its server has a state that the next user must not see; then it ends.
        """
        with self._lock:
            if session.alive and not used_up and len(self._idle) < self._most_idle:
                self._idle.append(session)
                return
        session.close()

    def close(self) -> None:
        """End the sessions that nobody uses."""
        with self._lock:
            idle = list(self._idle)
            self._idle.clear()
        for session in idle:
            session.close()


_pools: dict[tuple[int, McpServer], McpPool] = {}
_pools_lock = threading.Lock()


def pool_of(server: McpServer) -> McpPool:
    """Return the pool that all of this process share for a server."""
    with _pools_lock:
        key = (os.getpid(), server)
        if key not in _pools:
            _pools[key] = McpPool(server)
        return _pools[key]


@atexit.register
def _close_pools() -> None:
    for (pid, _), pool in list(_pools.items()):
        if pid == os.getpid():
            pool.close()
