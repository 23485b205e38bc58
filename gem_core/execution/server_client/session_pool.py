"""The sessions that this process has on environment servers: one thread for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from gem_core.env.remote.errors import WorkerPoolError
from gem_core.env.remote.outcome import Outcome
from gem_core.execution.server_client.directory import Directory
from gem_core.execution.server_client.file_limit import raise_file_limit
from gem_core.execution.server_client.opening import Opener, Wanted
from gem_core.execution.server_client.remote_session import Answered, RemoteSession
from gem_core.execution.workers.fleet import Restart
from gem_core.execution.workers.open_pools import OpenPools

SESSIONS = 2048
"""Connections for which this process may have files, beside those of its own."""
GRACE_S = 3.0
"""Seconds that the servers have to end the sessions when the pool is closed."""


class SessionPool:
    """Environments behind servers, each in a session and a connection of its own.

    `submit` returns at once; one thread with an event loop serves all connections. New sessions go
    to the server that has the fewest of this pool and can be reached. Where a connection is lost
    between two calls, ``restart`` says whether the calls are repeated in another session.
    """

    def __init__(self, addresses: Sequence[str], *, restart: Restart = "replay") -> None:
        raise_file_limit(SESSIONS)
        self.closed = False
        self._restart = restart
        self._directory = Directory(addresses)
        self._opener = Opener(self._directory)
        self._sessions: set[RemoteSession] = set()  # those that may be open
        self._tasks: set[asyncio.Task[Answered]] = set()
        self._lock = threading.RLock()  # what is begun comes before the end
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="gem-servers")
        self._thread.start()
        _pools.add(self)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The servers."""
        return self._directory.addresses

    @property
    def open(self) -> int:
        """The sessions that are open, or are being opened."""
        return self._directory.open

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Nothing: the calls of each session have a connection of their own."""
        yield

    def session(self, wanted: Wanted) -> RemoteSession:
        """Return a new environment, whose session is opened at the first call."""
        return RemoteSession(wanted, self._opener, self._restart)

    def submit(
        self, session: RemoteSession, method: str, data: dict[str, Any], deadline_s: float
    ) -> Outcome[Answered]:
        """Call a method of an environment, see `RemoteSession.call`; one call at a time.

        Raises:
            WorkerPoolError: the pool is closed.
        """
        outcome: Outcome[Answered] = Outcome()

        def begin() -> None:
            self._sessions.add(session)
            session.task = self._start(session.call(method, data, deadline_s), session, outcome)

        self._in_loop(begin)
        return outcome

    def close_session(self, session: RemoteSession) -> Outcome[Answered]:
        """End a session; a call of it that is under way is given up."""
        outcome: Outcome[Answered] = Outcome()

        def begin() -> None:
            self._sessions.discard(session)
            if session.task is not None:
                session.give_up()
            self._start(session.close(), session, outcome)

        try:
            self._in_loop(begin)
        except WorkerPoolError:  # it was ended with the pool
            outcome.set_result((None, None))
        return outcome

    def drop(self, session: RemoteSession) -> None:
        """End the session of an environment that nobody refers to; may be called at any time."""

        def begin() -> None:
            self._sessions.discard(session)
            session.give_up()

        with contextlib.suppress(WorkerPoolError):
            self._in_loop(begin)

    def close(self) -> None:
        """End all sessions; calls under way fail."""
        _pools.discard(self)
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._loop.call_soon_threadsafe(self._begin_to_end)
        if threading.current_thread() is not self._thread:
            self._thread.join(GRACE_S + 2.0)

    def forget(self) -> None:
        """Leave the connections to the parent; called in a forked child, which has no thread."""
        self.closed = True

    # -- in the thread ---------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _in_loop(self, function: Callable[[], None]) -> None:
        with self._lock:
            if self.closed:
                text = "The sessions on environment servers are closed: make a new pool."
                raise WorkerPoolError(text)
            self._loop.call_soon_threadsafe(function)

    def _start(
        self,
        call: Coroutine[Any, Any, Answered],
        session: RemoteSession,
        outcome: Outcome[Answered],
    ) -> asyncio.Task[Answered]:
        """Begin a call; what waits for its outcome may begin the next one at once."""
        task = self._loop.create_task(call)

        def finish(task: asyncio.Task[Answered]) -> None:
            self._tasks.discard(task)
            if session.task is task:
                session.task = None
            if task.cancelled():
                self._end_given_up(outcome)
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        self._tasks.add(task)
        task.add_done_callback(finish)
        return task

    def _end_given_up(self, outcome: Outcome[Answered]) -> None:
        if self.closed:
            text = "The sessions on environment servers were closed."
            outcome.set_exception(WorkerPoolError(text))
        else:  # nobody waits for it
            outcome.set_result((None, None))

    def _begin_to_end(self) -> None:
        """End the calls under way and the sessions, then the thread."""
        under_way = list(self._tasks)
        for session in self._sessions:
            if session.task is not None:
                session.give_up()
        closing = [self._loop.create_task(session.close()) for session in self._sessions]
        self._ending = self._loop.create_task(self._end([*under_way, *closing]))

    async def _end(self, tasks: list[asyncio.Task[Answered]]) -> None:
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_S)
        self._loop.stop()


_pools: OpenPools[SessionPool] = OpenPools()
