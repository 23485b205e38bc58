"""`MicroBatcher`: concurrent requests become calls of an engine that takes batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from gem_core.episodes.pacing import pace
from gem_core.episodes.policy import BatchPolicy, Request, check_batch_policy
from gem_core.errors import GemError

if TYPE_CHECKING:
    from gem_core.episodes.data import Completion


class MicroBatcher:
    """A `Policy` that collects concurrent requests into calls of a `BatchPolicy`.

    A call is made as soon as ``max_batch`` requests wait, or ``max_wait_s`` after the first of them
    and when no other episode of the event loop waits for its turn, after which it may ask, too. The
    engine runs in one worker thread; while it is busy, requests are collected for the next call.
    Use it in one event loop, as an asynchronous context manager, or call `close` at the end.
    """

    def __init__(
        self, policy: BatchPolicy, *, max_batch: int = 256, max_wait_s: float = 0.002
    ) -> None:
        check_batch_policy("MicroBatcher", policy)
        self.policy = policy
        self.max_batch = max_batch
        self.max_wait_s = max_wait_s
        self.calls: Counter[int] = Counter()
        """Number of engine calls by batch size."""
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._wake = asyncio.Event()
        self._full = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def complete(self, request: Request) -> Completion:
        """See `Policy`."""
        if self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._serve())
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        self._wake.set()
        if len(self._waiting) >= self.max_batch:
            self._full.set()
        return await future

    async def close(self) -> None:
        """Stop the worker; requests still waiting are cancelled."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        for _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    async def __aenter__(self) -> MicroBatcher:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _serve(self) -> None:
        while True:
            self._wake.clear()
            if not self._waiting:
                await self._wake.wait()
            self._full.clear()
            if len(self._waiting) < self.max_batch:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._full.wait(), self.max_wait_s)
            while len(self._waiting) < self.max_batch and pace().busy:
                await asyncio.sleep(0)  # episodes that are about to make their requests
            batch = [item for item in self._waiting[: self.max_batch] if not item[1].done()]
            del self._waiting[: self.max_batch]
            if batch:
                await self._call(batch)

    async def _call(self, batch: list[tuple[Request, asyncio.Future[Completion]]]) -> None:
        requests = [request for request, _ in batch]
        self.calls[len(requests)] += 1
        try:
            completions = await asyncio.to_thread(self.policy.complete_batch, requests)
            if len(completions) != len(requests):
                raise GemError(
                    f"The engine returned {len(completions)} completions for "
                    f"{len(requests)} requests."
                )
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), completion in zip(batch, completions, strict=True):
            if not future.done():  # a deadline may have ended its episode
                future.set_result(completion)
