"""One environment behind a server, as its client plays it: calls, deadlines, repairs."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from gem_core.env.remote.errors import EnvDeadlineError, RemoteError, remote_error
from gem_core.execution.server_client.async_client import AsyncClient
from gem_core.execution.server_client.connecting import ServerError
from gem_core.execution.server_client.opening import Opener, Wanted
from gem_core.execution.workers.fleet import Restart

Answered: TypeAlias = tuple[Any, Any]
"""What a method returned, and after a reset the `EnvSpec` of the environment, else ``None``."""
REPEAT_S = 120.0
"""Seconds of a call that is repeated."""
_KINDS = {"reset": "reset", "step": "step", "get_state": "save", "set_state": "load"}
_CHANGES = ("reset", "step", "load")
_LOSES_HISTORY = ("reset", "load")


class RemoteSession:
    """An environment behind a server; used from the event loop of its pool only.

    A session is opened at the first call. A connection that is lost during a call costs that call;
    one that was lost between two calls is repaired at the next one where ``restart`` is
    ``"replay"``: a new session repeats the calls so far, which gives the same state, because seed
    and actions decide an episode.

    Attributes:
        task: the call under way.
    """

    def __init__(self, wanted: Wanted, opener: Opener, restart: Restart) -> None:
        self.wanted = wanted
        self.task: asyncio.Task[Answered] | None = None
        self._opener = opener
        self._restart = restart
        self._client: AsyncClient | None = None
        self._history: list[tuple[str, dict[str, Any]]] = []
        self._gone: str | None = None  # why its state is lost, until it is reset
        self._given_up = False

    async def call(self, method: str, data: dict[str, Any], deadline_s: float) -> Answered:
        """Call ``reset``, ``step``, ``get_state`` or ``set_state`` of the environment.

        The answer must come within ``deadline_s`` seconds of when it was sent.

        Raises:
            EnvDeadlineError: no answer in time.
            ServerError: the server refuses the call, or is gone.
            DataError: after a reset, the environment is not the one that is wanted.
            RemoteError: the environment's own.
        """
        kind = _KINDS[method]
        if kind in _LOSES_HISTORY:
            self._history, self._gone = [], None
        client = await self._connect()
        try:
            answer = await self._ask(client, kind, data, deadline_s)
        finally:
            if self._client is client and kind in _CHANGES:
                self._history.append((kind, data))
        return self._result(kind, answer)

    async def close(self) -> Answered:
        """End the session."""
        client, self._client = self._client, None
        if client is not None:
            await self._opener.close(client)
        return None, None

    def give_up(self) -> None:
        """End it without waiting, also in the middle of a call."""
        self._given_up = True
        if self.task is not None:
            self.task.cancel()
        self.lose("it was given up")

    def lose(self, why: str) -> None:
        """Drop the connection; the state is lost until the next reset."""
        self._gone = why
        self._history = []
        client, self._client = self._client, None
        if client is not None:
            self._opener.abort(client)

    async def _connect(self) -> AsyncClient:
        """Return the connection; where it was lost, a new one in the same state."""
        if self._client is not None and self._client.is_open:
            return self._client
        if self._client is not None:
            history = self._history
            self.lose("its connection to the server was lost between two calls")
            if self._restart == "replay" or not history:
                self._history, self._gone = history, None
        if self._gone is not None:
            raise ServerError(f"the environment's state is lost: {self._gone}", "CLOSED")
        self._client = await self._opener.open(self.wanted)
        if self._given_up:  # `asyncio.wait_for` may have taken the cancellation for its own
            self.lose("it was given up")
            raise asyncio.CancelledError
        for kind, data in self._history:
            await self._repeat(self._client, kind, data)
        return self._client

    async def _repeat(self, client: AsyncClient, kind: str, data: dict[str, Any]) -> None:
        """Repeat a call; one that failed for its caller fails again, and the episode knows."""
        try:
            answer = await self._ask(client, kind, data, REPEAT_S)
        except (RemoteError, ServerError, EnvDeadlineError):
            if self._client is not client:  # the session is lost again
                raise
        else:
            self._result(kind, answer)

    async def _ask(
        self, client: AsyncClient, kind: str, data: dict[str, Any], deadline_s: float
    ) -> dict[str, Any]:
        """Send a message and return its answer; a session that cannot go on is dropped."""
        try:
            return await asyncio.wait_for(client.request(kind, data), deadline_s)
        except asyncio.TimeoutError:
            self.lose(f"the environment did not answer within {deadline_s:g} s")
            raise EnvDeadlineError(deadline_s) from None
        except ServerError as error:
            raise self._meaning(error, kind) from None
        except BaseException:
            self.lose("a call was given up")
            raise

    def _meaning(self, error: ServerError, kind: str) -> Exception:
        """Return what an error of the server is for the caller of the environment."""
        if "exception" in error.data:
            name = str(error.data["exception"])
            text = str(error).removeprefix(f"{name}: ")
            place = str(error.data.get("place", ""))
            return remote_error({"kind": name, "message": text, "traceback": "", "place": place})
        if "deadline_s" in error.data:
            seconds = float(error.data["deadline_s"])
            self.lose(f"the environment did not answer within the server's {seconds:g} s")
            return EnvDeadlineError(seconds)
        if error.code == "CLOSED":
            self.lose(f"the connection was lost in {kind}()")
            return ServerError(f"in {kind}(), {error}", error.code)
        return error

    def _result(self, kind: str, answer: dict[str, Any]) -> Answered:
        if kind == "save":
            return answer, None
        if kind == "load":
            return None, None
        shown = answer["observation"]
        if kind == "reset":
            try:
                spec = self.wanted.accept(answer.get("metadata") or {})
            except Exception:
                self.lose("the server has another environment")
                raise
            return (shown["text"], shown["info"]), spec
        ends = shown["terminated"], shown["truncated"]
        return (shown["text"], float(answer["reward"]), *ends, shown["info"]), None
