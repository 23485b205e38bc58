"""`SessionEnv`: an environment behind a server, for the environments of a run."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from gem_core.env.remote.env import RemoteCallsEnv
from gem_core.env.remote.outcome import Outcome
from gem_core.errors import EpisodeStateError
from gem_core.execution.server_client.opening import Wanted
from gem_core.execution.server_client.session_pool import SessionPool


class SessionEnv(RemoteCallsEnv):
    """An environment whose calls are made by a server, in a session of its own.

    The same seed gives the same episode as the environment here. Its session is opened at the first
    call and ends with `close`. A call must be answered within ``deadline_s`` seconds.
    """

    def __init__(self, pool: SessionPool, wanted: Wanted, *, deadline_s: float) -> None:
        super().__init__(deadline_s)
        self._pool = pool
        self._session = pool.session(wanted)

    @property
    def pool(self) -> SessionPool:
        """The sessions of this process."""
        return self._pool

    def submit(self, method: str, *arguments: Any, **named: Any) -> Outcome[Any]:
        """See `RemoteCallsEnv.submit`; `ServerError` is raised if the server is gone."""
        if method == "close":
            self._closed = True
            return self._pool.close_session(self._session)
        if self._closed:
            raise EpisodeStateError("The environment is closed: make a new one.")
        data = _DATA[method](*arguments, **named)
        return self._pool.submit(self._session, method, data, self.deadline_s)

    def receive(self, outcome: Outcome[Any]) -> Any:
        """See `RemoteCallsEnv.receive`."""
        result, spec = outcome.result()
        if spec is not None:
            self.spec = spec
        return result

    def random_action(self, rng: Random) -> str:
        """Raise: a server gives no random actions, and scripted players play inline.

        Raises:
            EpisodeStateError: always.
        """
        raise EpisodeStateError(
            "A server gives no random actions: make the environment here for a scripted player."
        )

    def __del__(self) -> None:
        if "_session" in self.__dict__ and not self._closed:
            self._pool.drop(self._session)


def _reset(*, seed: int | None = None, options: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"seed": seed} if options is None else {"seed": seed, "options": options}


_DATA: dict[str, Callable[..., dict[str, Any]]] = {
    "reset": _reset,
    "step": lambda action: {"text": action},
    "get_state": dict,
    "set_state": dict,
}
"""The data of the message for each method."""
