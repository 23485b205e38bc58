"""Environments that clients of a server play, each in a session with a name."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from gem_core.env.interface import Env
from gem_core.env.registration import check_client_parameters, list_envs, make_from_data
from gem_core.errors import GemError

if TYPE_CHECKING:
    from gem_core.env.interface import StepResult


class ServeError(GemError, ValueError):
    """A request that was refused; the message tells the client why."""


class ServeLimits(NamedTuple):
    """What clients may use.

    Attributes:
        environments: shell-style patterns of the ids that are served.
        sessions: sessions at once.
        idle_s: seconds without a call after which a session may be closed for a new one.
        call_s: wall seconds of a call.
        parameters: whether clients may set the parameters that environments declare for them.
        allowed: what the operator allows besides, as (id, parameters): a client may set just these
            values of the environment.
    """

    environments: tuple[str, ...] = ("*",)
    sessions: int = 64
    idle_s: float = 1800.0
    call_s: float = 60.0
    parameters: bool = False
    allowed: tuple[tuple[str, Mapping[str, Any]], ...] = ()


class _Session:
    def __init__(self, name: str, env: Env):
        self.name = name
        self.env = env
        self.lock = threading.Lock()
        self.used_at = time.monotonic()
        self.over = False


class EnvSessions:
    """The sessions of one server. May be used from many threads.

    Args:
        limits: what clients may use.
    """

    def __init__(self, limits: ServeLimits | None = None):
        self.limits = limits or ServeLimits()
        self._sessions: dict[str, _Session | None] = {}  # None: being made
        self._lock = threading.Lock()

    def environments(self, pattern: str = "") -> list[str]:
        """Return the ids that are served, those that match a pattern or contain a text."""
        served = self.limits.environments
        names = list_envs(pattern or None)
        return [name for name in names if any(fnmatchcase(name, glob) for glob in served)]

    def reset(
        self, environment: str, seed: int | None, parameters: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Make an environment and start an episode.

        Raises:
            ServeError: the id is not served, or every session is taken.
            ParameterError: a parameter is not one that clients may set.
            GemError: the environment cannot be made.
        """
        if environment not in self.environments():
            raise ServeError(
                f"There is no environment {environment!r:.80} here: list_environments lists them."
            )
        if parameters and not self.limits.parameters:
            raise ServeError(
                "This server does not allow parameters of environments: start it with --parameters."
            )
        check_client_parameters(environment, parameters or {}, self.limits.allowed)
        name = self._reserve()
        try:
            env = make_from_data(environment, parameters or {})
            observation, info = env.reset(seed=seed)
        except BaseException:
            self._forget(name)
            raise
        with self._lock:
            self._sessions[name] = _Session(name, env)
        return {"session": name, "observation": observation, "info": as_json(info)}

    def step(self, session: str, action: str) -> dict[str, Any]:
        """Play an action.

        Raises:
            ServeError: there is no such session, its episode is over, or a call of it is running.
        """
        found = self._find(session)
        if not found.lock.acquire(blocking=False):
            raise ServeError(f"A call of the session {session!r} is still running.")
        try:
            if found.over:
                raise ServeError("The episode is over: reset starts another one.")
            result = found.env.step(action)
            found.over = result[2] or result[3]
            found.used_at = time.monotonic()
        finally:
            found.lock.release()
        return step_as_json(result)

    def close(self, session: str) -> None:
        """End a session.

        Raises:
            ServeError: there is no such session.
        """
        found = self._find(session)
        self._forget(session)
        found.env.close()

    def close_all(self) -> None:
        """End every session."""
        with self._lock:
            sessions = [session for session in self._sessions.values() if session is not None]
            self._sessions.clear()
        for session in sessions:
            session.env.close()

    def _find(self, name: str) -> _Session:
        with self._lock:
            found = self._sessions.get(name)
        if found is None:
            raise ServeError(
                f"There is no session {name!r:.60}: it was closed, or had no call for too long. "
                "reset starts one."
            )
        return found

    def _reserve(self) -> str:
        """Return the name of a new session; one that is idle for too long makes room."""
        name = secrets.token_hex(8)
        with self._lock:
            idle = self._idle() if len(self._sessions) >= self.limits.sessions else None
            if idle is not None:
                del self._sessions[idle.name]
            elif len(self._sessions) >= self.limits.sessions:
                raise ServeError(f"All {self.limits.sessions} sessions are taken: close one.")
            self._sessions[name] = None
        if idle is not None:
            idle.env.close()
        return name

    def _idle(self) -> _Session | None:
        """Return the session that was idle for longest, if that is too long."""
        sessions = [session for session in self._sessions.values() if session is not None]
        oldest = min(sessions, key=lambda session: session.used_at, default=None)
        if oldest is None or time.monotonic() - oldest.used_at < self.limits.idle_s:
            return None
        return oldest

    def _forget(self, name: str) -> None:
        with self._lock:
            self._sessions.pop(name, None)


def step_as_json(result: StepResult) -> dict[str, Any]:
    """Return the result of a step as JSON data."""
    observation, reward, terminated, truncated, info = result
    return {
        "observation": observation,
        "reward": float(reward),
        "terminated": terminated,
        "truncated": truncated,
        "info": as_json(info),
    }


def as_json(value: Any) -> Any:
    """Return a value as JSON holds it; what JSON has no form for becomes its text."""
    return json.loads(json.dumps(value, default=repr))
