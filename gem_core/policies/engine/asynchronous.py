"""The engine for an event loop: requests may come, be cancelled and wait at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from gem_core.episodes.data import Completion
from gem_core.policies.engine.engine import Engine, EngineRequest

GATHER_S = 0.002
"""New requests are begun when none came for so long: a batch costs little more than one."""

Result = TypeVar("Result")


class AsyncEngine:
    """Runs an `Engine` in a worker thread; use it in one event loop.

    Args:
        engine: used by nobody else.
        gather_s: seconds without a new request after which those that wait are begun.
    """

    def __init__(self, engine: Engine, *, gather_s: float = GATHER_S) -> None:
        self.engine = engine
        self.gather_s = gather_s
        self._arrived: list[tuple[EngineRequest, asyncio.Future[Completion]]] = []
        self._futures: dict[int, asyncio.Future[Completion]] = {}
        self._turn = asyncio.Lock()
        self._calls = 0
        self._cancelled = False
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Task[None] | None = None

    @property
    def unfinished(self) -> int:
        """Number of requests that run or wait."""
        return len(self._arrived) + len(self._futures)

    async def complete(self, request: EngineRequest) -> Completion:
        """Sample one completion; a cancelled call aborts its request.

        Raises:
            ValueError: see `Engine.add`.
        """
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._arrived.append((request, future))
        if self._server is None or self._server.done():
            self._server = asyncio.ensure_future(self._serve())
        try:
            return await future
        except asyncio.CancelledError:
            self._cancelled = True
            raise

    async def pause(self) -> None:
        """Begin no further step until `resume`; returns when the current one has ended."""
        self._open.clear()
        async with self._turn:
            pass

    def resume(self) -> None:
        """Continue the requests that wait or run."""
        self._open.set()

    async def update(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function that changes the weights, between two steps and in a thread."""
        self._calls += 1
        try:
            async with self._turn:
                result = await asyncio.to_thread(function, *arguments)
                self.engine.drop_caches()
        finally:
            self._calls -= 1
        return result

    async def _serve(self) -> None:
        """Step until no request is left."""
        while self.unfinished:
            await self._gather()
            await self._open.wait()
            async with self._turn:
                self._begin()
                if not self._futures:
                    continue
                try:
                    ended = await asyncio.to_thread(self.engine.advance, self._must_return)
                except Exception as error:
                    self._fail(error)
                    continue
            for number, completion in ended.items():
                future = self._futures.pop(number)
                if not future.done():
                    future.set_result(completion)

    async def _gather(self) -> None:
        """Wait while new requests keep coming, and let those that ended cause new ones."""
        await asyncio.sleep(0)
        count = 0
        while count < len(self._arrived):
            count = len(self._arrived)
            await asyncio.sleep(self.gather_s)

    def _must_return(self) -> bool:
        """Return whether the engine must return to the event loop; called in its thread."""
        waited_for = self._arrived or self._calls or self._cancelled
        return bool(waited_for) or not self._open.is_set()

    def _begin(self) -> None:
        """Hand over what arrived, and abort what was cancelled."""
        arrived = self._arrived
        self._arrived = []
        self._cancelled = False
        for request, future in arrived:
            if future.done():
                continue
            try:
                self._futures[self.engine.add(request)] = future
            except ValueError as error:
                future.set_exception(error)
        for number in [number for number, future in self._futures.items() if future.done()]:
            self.engine.abort(number)
            del self._futures[number]

    def _fail(self, error: Exception) -> None:
        """Give the error of a step to all requests; none of them can be continued."""
        for number, future in self._futures.items():
            self.engine.abort(number)
            if not future.done():
                future.set_exception(error)
        self._futures.clear()
        self.engine.drop_caches()
