"""A worker process on a node of a Ray cluster, as its pool sees it."""

from __future__ import annotations

import contextlib
import hmac
import itertools
import os
import secrets
import socket
import sys
import time
import weakref
from collections.abc import Iterator
from typing import Any

from gem_core.errors import GemError, MissingDependencyError
from gem_core.execution.workers.channel import Channel

TOKEN_BYTES = 32
"""Length of what a worker sends first."""
END_S = 5.0
"""Seconds that the node of a worker has to say how it ended."""
AVOID_S = 60.0
"""Seconds for which a node gets no worker after an actor failed there: Ray may take as long to see
that a node has ended, and places actors on it until then."""
ATTEMPTS = 3
"""Actors that are asked for one worker process before it has failed; nodes where one could not run
come last."""
_HELLO_S = 1.0
_LOOPBACK = "127.0.0.1"
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
_VARIABLES = "GEM_"
"""Variables of the environment whose names begin so go with the worker."""
_ours = False  # whether this module called ``ray.init``
_live: weakref.WeakSet[RayProcess] = weakref.WeakSet()  # started, not ended
_placed = itertools.count()
_failed: dict[str, float] = {}  # node -> when an actor failed there
_idle: list[Any] = []  # actors whose process has ended; another process takes a new one a second


def join_cluster(address: str | None) -> None:
    """Let this process belong to a Ray cluster.

    A process that belongs to one already stays in it, as those of verl and OpenRLHF do.

    Args:
        address: of the cluster (``"host:6379"``, ``"auto"``, ``"ray://..."``); ``None``: that of
            ``RAY_ADDRESS``, or else a new one of this machine, which ends with `leave_cluster`.

    Raises:
        MissingDependencyError: Ray is not installed.
        GemError: there is no cluster at the address, or this process belongs to another one.
    """
    global _ours
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "workers.backend = 'ray' needs Ray: pip install 'gem-core[ray]'"
        ) from error
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", here):
            raise GemError(
                f"workers.address = {address!r}, but this process belongs to the Ray cluster at "
                f"{here}: leave workers.address out."
            )
        return
    try:
        theirs = address or os.environ.get("RAY_ADDRESS")
        # Without an address Ray joins whatever cluster was started last on this machine.
        ray.init(theirs or "local", log_to_driver=False, **({} if theirs else _LOCAL))
    except ConnectionError as error:
        raise GemError(f"workers.address: no Ray cluster at {address!r} ({error}).") from error
    _ours = True


_LOCAL = {"include_dashboard": False}


def leave_cluster() -> None:
    """Leave the cluster that `join_cluster` joined, unless workers of this process are in it.

    A cluster of this machine ends.
    """
    global _ours
    if _live:
        return
    if _idle:
        import ray

        while _idle:
            if ray.is_initialized():
                ray.kill(_idle.pop()[1])
            else:
                _idle.clear()
    if _ours:
        import ray

        _ours = False
        ray.shutdown()


class RayProcess(Channel):
    """A worker process that an actor has started; it is not thread-safe.

    The actor reserves no CPU in Ray: it would wait for ever where the trainer has them all.
    Nodes get actors by turns. Whoever connects without the token is sent away.
    """

    def __init__(self) -> None:
        super().__init__()
        self._token = secrets.token_hex(TOKEN_BYTES // 2)
        self._listener: socket.socket | None = None
        self._actor: Any = None
        self._node = ""
        self._attempts = 0
        self._asks_again = False
        self._pid: int | None = None
        self._failure = ""

    def start(self) -> None:
        """Have an actor start it; it connects later."""
        self._listener = socket.create_server((_own_address(), 0))
        self._listener.setblocking(False)
        _live.add(self)
        self._launch(self._listener.getsockname()[:2])

    def _launch(self, address: tuple[str, int]) -> None:
        """Ask an idle actor, or else a new one, for the process."""
        reused = bool(_idle)
        if reused:
            self._node, self._actor = _idle.pop()
        else:
            self._attempts += 1
            launcher = _new_launcher()
            if launcher is None:
                self._fail("no node of the Ray cluster answers", address)
                return
            self._node, self._actor = launcher
        variables = {k: v for k, v in os.environ.items() if k.startswith(_VARIABLES)}
        started = self._actor.start.remote(address, self._token, sys.path, variables)
        started.future().add_done_callback(lambda done: self._on_launch(done, address, reused))

    def _on_launch(self, done: Any, address: tuple[str, int], reused: bool) -> None:
        """Note the process, or wake the pool's thread by a connection.

        This is in a thread of Ray's, which waits for ever if it calls Ray.
        """
        from ray.exceptions import RayActorError

        error = done.exception()
        if error is None:
            self._pid = done.result()
            return
        ended = isinstance(error, RayActorError)  # the actor or its node, not what it did
        if ended:
            _failed[self._node] = time.monotonic()
        if reused or (ended and self._attempts < ATTEMPTS):
            self._asks_again = True
            _wake(address)
        else:
            self._fail(f"its actor failed: {error}", address)

    def _fail(self, why: str, address: tuple[str, int]) -> None:
        """Let the pool's thread find that the process could not be started."""
        self._failure = why
        _wake(address)

    @property
    def pid(self) -> int | None:
        """Its process id on its node, ``None`` before it is started."""
        return self._pid

    def fileno(self) -> int:
        """Return the number of the socket to wait at: another one once the worker is there."""
        waiting = self._listener if self._socket is None else self._socket
        return -1 if waiting is None else waiting.fileno()

    def receive(self) -> Iterator[Any]:
        """Yield the messages that have arrived.

        Raises:
            EOFError: the worker has ended, or could not be started.
        """
        if self._socket is None:
            self._socket = self._accept()
        if self._socket is not None:
            yield from super().receive()

    def _accept(self) -> socket.socket | None:
        """Return the connection of the worker, if it has come."""
        assert self._listener is not None  # it is waited at
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return None
            if self._failure:
                connection.close()
                raise EOFError(self._failure)
            if self._asks_again:
                self._asks_again = False
                connection.close()
                self._launch(self._listener.getsockname()[:2])
                continue
            if self._knows_token(connection):
                self._listener.close()
                _keep_alive(connection)
                connection.setblocking(False)
                return connection
            connection.close()

    def _knows_token(self, connection: socket.socket) -> bool:
        connection.settimeout(_HELLO_S)
        try:
            said = connection.recv(TOKEN_BYTES, socket.MSG_WAITALL)
        except OSError:
            return False
        return hmac.compare_digest(said, self._token.encode())

    def kill(self, *, ended: bool = False) -> str:
        """See `Channel.kill`; its actor is kept for another process."""
        import ray
        from ray.exceptions import GetTimeoutError, RayError

        self.forget()
        if self._actor is None:
            return self._failure or "it was not started"
        if not ray.is_initialized():  # the cluster ended before it
            return "the Ray cluster ended"
        try:
            how: str = ray.get(self._actor.end.remote(ended), timeout=END_S)
        except GetTimeoutError:
            how = f"its node did not answer within {END_S:g} s"
        except RayError as error:
            how = f"its node or actor ended ({type(error).__name__})"
        else:
            _idle.append((self._node, self._actor))
            return self._failure or how
        _failed[self._node] = time.monotonic()
        ray.kill(self._actor)
        return self._failure or how

    def forget(self) -> None:
        """Close the sockets only, as in a forked child, whose worker it is not."""
        super().forget()
        _live.discard(self)
        if self._listener is not None:
            self._listener.close()


def _wake(address: tuple[str, int]) -> None:
    """Connect to a listener, whose thread then looks at what has become of its process."""
    with contextlib.suppress(OSError), socket.create_connection(address, _HELLO_S):
        pass


def _new_launcher() -> tuple[str, Any] | None:
    """Return the id of a node and a new actor there; ``None`` where Ray sees no node alive."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from gem_core.execution.workers.ray_launcher import Launcher

    # By turns: Ray's own "SPREAD" puts all on one node while its books do not show the others yet.
    nodes = _nodes()
    if not nodes:
        return None
    node = nodes[next(_placed) % len(nodes)]
    strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
    options = {"num_cpus": 0, "scheduling_strategy": strategy, "max_restarts": 0}
    return node["NodeID"], ray.remote(Launcher).options(**options).remote()


def _nodes() -> list[dict[str, Any]]:
    """Return the nodes that are there.

    Those on which an actor failed a moment ago, and those that have no CPU in Ray, only if
    there are no others.
    """
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]
    now = time.monotonic()
    trusted = [node for node in alive if now - _failed.get(node["NodeID"], -AVOID_S) >= AVOID_S]
    alive = trusted or alive
    working = [node for node in alive if node["Resources"].get("CPU", 0) > 0]
    return sorted(working or alive, key=lambda node: str(node["NodeID"]))


def _keep_alive(connection: socket.socket) -> None:
    """Notice within half a minute that the machine at the other end is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _own_address() -> str:
    """Return where to listen: only where nodes on other machines exist, not on the loopback."""
    import ray

    own: str = ray.util.get_node_ip_address()
    nodes = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    return _LOOPBACK if nodes <= {own, _LOOPBACK} else own
