"""Opening sessions on one of several servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from gem_core.execution.server_client.async_client import AsyncClient, connect
from gem_core.execution.server_client.connecting import ServerError
from gem_core.execution.server_client.directory import Directory

RETRY_S = 10.0
"""Seconds for which a server that cannot be reached is tried again."""
OPEN_S = 120.0
"""Seconds in which a server must make an environment; also those for which one that has no session
to give is asked again."""
PAUSE_S = 0.1
"""Seconds until it is asked again; each time longer, at most `LONGEST_PAUSE_S`."""
LONGEST_PAUSE_S = 2.0
CONNECTING = 64
"""Connections that are being made at the same time."""
_PATIENCE = {"UNREACHABLE": RETRY_S, "UNAVAILABLE": RETRY_S, "CAPACITY_REACHED": OPEN_S}


class Wanted(NamedTuple):
    """The environment that a session is to have.

    Attributes:
        environment: its id.
        parameters: of the environment.
        accept: takes what the server says of it after a reset
            (`gem_server.messages.facts`) and returns its `EnvSpec`; raises
            `DataError` if it is not the one that is meant.
    """

    environment: str
    parameters: dict[str, Any]
    accept: Callable[[dict[str, Any]], Any]


class Opener:
    """Opens and counts sessions; used from one event loop only."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self._gate: asyncio.Semaphore | None = None

    async def open(self, wanted: Wanted) -> AsyncClient:
        """Return a connection whose session has its environment.

        A server that cannot be reached, or has no session left, is asked again for a while; another
        one is asked at once.

        Raises:
            ServerError: no server gives such a session.
            MissingDependencyError: ``websockets`` is not installed.
        """
        began = time.monotonic()
        pause = PAUSE_S
        while True:
            last: ServerError | None = None
            for address in self.directory.in_order(time.monotonic()):
                try:
                    return await self._open_on(address, wanted)
                except ServerError as error:
                    if error.code not in _PATIENCE:
                        raise
                    if error.code != "CAPACITY_REACHED":
                        self.directory.mark_down(address, time.monotonic())
                    last = error
            assert last is not None
            if time.monotonic() - began >= _PATIENCE[last.code]:
                raise last
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _open_on(self, address: str, wanted: Wanted) -> AsyncClient:
        if self._gate is None:
            self._gate = asyncio.Semaphore(CONNECTING)
        self.directory.add_session(address)
        client = None
        try:
            async with self._gate:
                client = await connect(address, wanted.environment, wanted.parameters)
            # Answered as soon as the environment is made, or with the reason why it is not.
            await asyncio.wait_for(client.request("state", {}), OPEN_S)
            return client
        except BaseException as error:
            self.directory.remove_session(address)
            if client is not None:
                client.abort()
            if isinstance(error, asyncio.TimeoutError):
                text = f"{address} did not make {wanted.environment} within {OPEN_S:g} s"
                raise ServerError(text, "FACTORY_ERROR") from None
            if isinstance(error, ServerError) and client is not None:
                raise ServerError(f"{address}: {error}", error.code, error.data) from None
            raise

    async def close(self, client: AsyncClient) -> None:
        """End a session."""
        self.directory.remove_session(client.address)
        await client.close()

    def abort(self, client: AsyncClient) -> None:
        """Drop the connection of a session."""
        self.directory.remove_session(client.address)
        client.abort()
