"""The sessions of a server: one environment each, called in threads under a deadline."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from gem_core.env.interface import Env
from gem_core.env.registration import (
    check_client_parameters,
    is_foreign,
    list_envs,
    make_from_data,
)
from gem_core.env.registration.parameters import ParameterError
from gem_core.env.remote.errors import describe_error, remote_error
from gem_core.episodes.env_threads import EnvThreads
from gem_core.errors import GemError, error_line, text_of
from gem_server.limits import RefusedError, ServerLimits
from gem_server.metrics import ServerMetrics

T = TypeVar("T")
_log = logging.getLogger(__name__)
CLOSE_S = 5.0
"""Seconds in which the environments must close when the server ends."""
REAP_S = 1.0
"""Longest time between two looks for idle sessions."""


class Session:
    """One client's environment.

    Attributes:
        name: what the client calls it; also ``episode_id`` until a reset gives another.
        environment: the id of its environment.
        used_at: ``time.monotonic()`` of its last message.
        steps: of the running episode.
    """

    def __init__(self, name: str, environment: str, env: Env) -> None:
        self.name = name
        self.environment = environment
        self.env = env
        self.used_at = time.monotonic()
        self.steps = 0
        self.episode_id = name
        self.busy = False
        self.broken = False
        self._running = False
        self._lock = threading.Lock()

    def run(self, function: Callable[[Env], T]) -> T:
        """Call the environment, in a thread; one that returns after `give_up` is closed."""
        with self._lock:
            self._running = True
        try:
            return function(self.env)
        finally:
            with self._lock:
                self._running = False
                late = self.broken
            if late:
                close_logged(self)

    def give_up(self) -> bool:
        """Let no call follow; return whether none is running, so that it must be closed now."""
        with self._lock:
            self.broken = True
            return not self._running


class Sessions:
    """All sessions of one server. Used from the server's event loop only.

    Args:
        limits: what clients may use.
        metrics: where everything is counted.
    """

    def __init__(self, limits: ServerLimits, metrics: ServerMetrics) -> None:
        self.limits = limits
        self.metrics = metrics
        self._threads = EnvThreads(limits.threads)
        self._open: dict[str, Session] = {}
        self._reserved = 0

    @property
    def count(self) -> int:
        """The number of sessions, with those that are being opened."""
        return len(self._open) + self._reserved

    @property
    def hung(self) -> int:
        """The number of calls that passed their deadline and still run."""
        return self._threads.hung

    async def open(self, environment: str, parameters: Mapping[str, Any]) -> Session:
        """Make an environment for a client.

        Raises:
            RefusedError: the id is not served, a parameter is not one that clients may set, all
                sessions are taken, or the environment cannot be made.
        """
        self._check(environment, parameters)
        self._reserved += 1
        try:
            env = await self._in_thread(lambda: make_from_data(environment, parameters))
        except TimeoutError:
            raise RefusedError(
                f"{environment} was not made within {self.limits.call_s:g} s.", "FACTORY_ERROR", 504
            ) from None
        except Exception as error:  # of a class that anybody may have written
            if not isinstance(error, (GemError, TypeError, ValueError)):
                _log.warning("%s could not be made", environment, exc_info=error)
            text = text_of(error) if isinstance(error, GemError) else error_line(error)
            raise RefusedError(f"{environment}: {text}", "FACTORY_ERROR") from None
        finally:
            self._reserved -= 1
        session = Session(secrets.token_urlsafe(16), environment, env)
        self._open[session.name] = session
        self.metrics.count("sessions_opened_total")
        return session

    def find(self, name: str) -> Session:
        """Return a session by its name.

        Raises:
            RefusedError: there is none.
        """
        session = self._open.get(name)
        if session is None:
            raise RefusedError("There is no such session: it was closed.", "SESSION_ERROR", 404)
        return session

    async def call(self, session: Session, function: Callable[[Env], T]) -> T:
        """Call an environment in a thread.

        Raises:
            RefusedError: a call of the session is running, or it did not return in time; the
                session is then closed.
            Exception: the environment's own.
        """
        if session.busy or session.broken:
            raise RefusedError("A call of this session is still running.", "SESSION_ERROR", 409)
        session.busy = True
        try:
            return await self._in_thread(lambda: session.run(function))
        except TimeoutError:
            self._forget(session, "deadline")
            if session.give_up():  # it returned at the last moment
                await self._in_thread(lambda: close_logged(session))
            raise RefusedError(
                f"The environment did not answer within {self.limits.call_s:g} s; its session is "
                "closed.",
                "EXECUTION_ERROR",
                504,
                deadline_s=self.limits.call_s,
            ) from None
        finally:
            session.busy = False
            session.used_at = time.monotonic()

    async def close(self, session: Session, reason: str) -> None:
        """End a session; a second call has no effect."""
        if not self._forget(session, reason):
            return
        while session.busy:  # a call of it is running: close() must not come in between
            await asyncio.sleep(0.01)
        if session.broken:
            return
        try:
            await self._in_thread(lambda: close_logged(session))
        except TimeoutError:
            _log.warning("%s: close() did not return", session.environment)

    async def close_all(self) -> None:
        """End every session, as far as that can be done in `CLOSE_S` seconds."""
        closing = [
            asyncio.create_task(self.close(session, "server")) for session in self._open.values()
        ]
        if closing:
            _, late = await asyncio.wait(closing, timeout=CLOSE_S)
            for task in late:
                task.cancel()

    async def close_idle(self) -> None:
        """Run until cancelled: end the sessions that had no message for too long."""
        while True:
            await asyncio.sleep(min(REAP_S, self.limits.idle_s / 2))
            latest = time.monotonic() - self.limits.idle_s
            for session in list(self._open.values()):
                if session.used_at < latest and not session.busy:
                    await self.close(session, "idle")

    def is_open(self, session: Session) -> bool:
        """Return whether a session was not closed."""
        return session.name in self._open

    def _forget(self, session: Session, reason: str) -> bool:
        if self._open.pop(session.name, None) is None:
            return False
        self.metrics.count("sessions_closed_total", reason)
        return True

    def _check(self, environment: str, parameters: Mapping[str, Any]) -> None:
        if not is_served(environment, self.limits.environments):
            raise RefusedError(
                f"There is no environment {environment!r:.80} here; --environments of the server "
                "says which ids it serves.",
                status=404,
            )
        if parameters and not self.limits.parameters:
            raise RefusedError(
                "This server does not allow parameters of environments: start it with --parameters."
            )
        try:
            check_client_parameters(environment, parameters, self.limits.allowed)
        except ParameterError as error:
            raise RefusedError(str(error)) from None
        used = memory_mb()
        if used > self.limits.memory_mb:
            raise RefusedError(
                f"The server uses {used:.0f} MB of memory; it opens no session beyond "
                f"{self.limits.memory_mb:.0f} MB (--memory-mb of the server).",
                "CAPACITY_REACHED",
                503,
            )
        if self.count >= self.limits.sessions:
            raise RefusedError(
                f"All {self.limits.sessions} sessions are taken; --sessions of the server sets how "
                "many there are.",
                "CAPACITY_REACHED",
                503,
            )

    async def _in_thread(self, function: Callable[[], T]) -> T:
        begun = time.monotonic()
        call = self._threads.submit(lambda: _without_exit(function), self.limits.call_s)
        future = asyncio.wrap_future(call.future)
        while not future.done():
            await asyncio.wait({future}, timeout=max(call.left(), 0.001))
            if not future.done() and call.left() <= 0:
                self._threads.abandon(call)
                raise TimeoutError
        self.metrics.observe_call(time.monotonic() - begun)
        return future.result()


def _without_exit(function: Callable[[], T]) -> T:
    """Call a function; where it would end the whole server, that is an error of its session.

    A thread gets neither a cancellation nor Ctrl-C: whatever is raised in it is its own.
    """
    try:
        return function()
    except Exception:
        raise
    except BaseException as error:
        raise remote_error(describe_error(error)) from None


def close_logged(session: Session) -> None:
    """Close the environment of a session; that it fails to is no client's error, but is logged."""
    try:
        session.env.close()
    except BaseException as error:  # in a thread, see `_without_exit`
        _log.warning("%s: close() failed: %s", session.environment, error_line(error))


def memory_mb() -> float:
    """Return the resident memory of this process in MB; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def is_served(environment: str, patterns: tuple[str, ...]) -> bool:
    """Return whether an id is served: a registered one that matches, or one of another package.

    A class that nobody registered is not, though `gem_core.make` takes its name.

    >>> is_served("remote:game:X", ("*",)), is_served("gem:game:X", ("gem:*",))
    (False, True)
    >>> is_served("my_module:Task", ("my_module:*",))
    False
    """
    matching = [glob for glob in patterns if fnmatchcase(environment, glob)]
    if not matching:
        return False
    namespace = environment.partition(":")[0] + ":"
    if environment in list_envs():
        return True
    return is_foreign(environment) and any(glob.startswith(namespace) for glob in matching)


def list_served(patterns: tuple[str, ...]) -> list[str]:
    """Return the registered ids that are served."""
    return [name for name in list_envs() if any(fnmatchcase(name, glob) for glob in patterns)]


def as_json(value: Any) -> Any:
    """Return a value as JSON holds it; what JSON has no form for becomes its text."""
    return json.loads(json.dumps(value, default=repr))
