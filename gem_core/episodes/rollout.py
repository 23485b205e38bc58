"""Playing episodes: how machines and generation engines meet.

* `play` — one episode over an asynchronous `Policy`.
* `play_many` — many at once, no barrier between them.
* `play_batch` — many in lockstep over a synchronous `BatchPolicy` (one engine call
  per turn), for engines that only take batches.
* `MicroBatcher` — turns a `BatchPolicy` into a `Policy` by collecting the
  requests of concurrent episodes into one engine call.

Environments that may block run in a thread of their own, so neither the event loop nor the other
episodes wait, and a deadline ends an episode whose environment hangs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import wait as wait_futures
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gem_core.episodes.data import Completion, Episode, StopReason
from gem_core.episodes.machine import EpisodeMachine
from gem_core.errors import GemError

T = TypeVar("T")
SLOW_ENV_DEADLINE_S = 60.0
"""Deadline of one step of an environment that declares ``slow``, where the limits set none."""


@dataclass(slots=True)
class Request:
    """What an engine is asked: continue ``prompt_ids`` by at most ``max_tokens`` tokens.

    ``machine`` identifies the episode (sticky routing, text or message prompts); engines only read
    from it.
    """

    prompt_ids: list[int]
    max_tokens: int
    machine: EpisodeMachine


class Policy(Protocol):
    """An asynchronous generation engine."""

    async def complete(self, request: Request) -> Completion:
        """Sample one completion, the stop token included."""


class BatchPolicy(Protocol):
    """A synchronous generation engine that takes batches."""

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample one completion per request, in the same order."""


async def play(machine: EpisodeMachine, policy: Policy) -> Episode:
    """Play one episode to its end.

    Environment faults and deadlines end up in the episode. Faults of the policy are raised: a
    broken engine is not an episode.
    """
    limit = machine.limits.episode_deadline_s
    ends_at = None if limit is None else time.monotonic() + limit
    prompt_ids = await _in_env(machine, machine.start, ends_at)
    while prompt_ids is not None:
        began = time.perf_counter()
        request = Request(prompt_ids, machine.max_tokens, machine)
        try:
            completion = await asyncio.wait_for(policy.complete(request), _left(ends_at))
        except asyncio.TimeoutError:
            if ends_at is None or time.monotonic() < ends_at:
                raise  # the engine's own time-out, not our deadline
            machine.abort(StopReason.DEADLINE, f"no completion within {limit} s of the episode")
            break
        machine.add_seconds("policy", time.perf_counter() - began)
        prompt_ids = await _in_env(machine, _feeder(machine, completion), ends_at)
    return machine.episode


async def play_many(
    machines: Iterable[EpisodeMachine], policy: Policy, *, concurrency: int = 1024
) -> list[Episode]:
    """Play all ``machines``, at most ``concurrency`` at a time; results in the order given.

    No episode waits for another. The first fault of the policy cancels the rest and is raised.
    """
    gate = asyncio.Semaphore(concurrency)

    async def one(machine: EpisodeMachine) -> Episode:
        async with gate:
            return await play(machine, policy)

    tasks = [asyncio.ensure_future(one(machine)) for machine in machines]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def play_batch(machines: Sequence[EpisodeMachine], policy: BatchPolicy) -> list[Episode]:
    """Play all ``machines`` turn by turn, one engine call per turn for all that still run.

    The engine is called until every episode is over; the results keep the order given.
    """
    started = time.monotonic()
    prompts = _step_all([(m, m.start) for m in machines], started)
    while any(prompt is not None for prompt in prompts):
        active = [
            (slot, Request(prompt, machine.max_tokens, machine))
            for slot, (machine, prompt) in enumerate(zip(machines, prompts, strict=True))
            if prompt is not None
        ]
        began = time.perf_counter()
        completions = policy.complete_batch([request for _, request in active])
        spent = time.perf_counter() - began
        calls: list[tuple[EpisodeMachine, Callable[[], list[int] | None]]] = []
        for (_, request), completion in zip(active, completions, strict=True):
            request.machine.add_seconds("policy", spent / len(active))
            calls.append((request.machine, _feeder(request.machine, completion)))
        prompts = [None] * len(machines)
        for (slot, _), prompt in zip(active, _step_all(calls, started), strict=True):
            prompts[slot] = prompt
    return [machine.episode for machine in machines]


class MicroBatcher:
    """A `Policy` that gathers concurrent requests into calls of a `BatchPolicy`.

    A call is made when ``max_batch`` requests wait, or ``max_wait_s`` after the first of them. The
    engine runs in one worker thread; while it is busy, requests gather for the next call. Use it in
    one event loop, as an asynchronous context manager or with `close` at the end.
    """

    def __init__(
        self, policy: BatchPolicy, *, max_batch: int = 256, max_wait_s: float = 0.002
    ) -> None:
        self.policy, self.max_batch, self.max_wait_s = policy, max_batch, max_wait_s
        self.calls: Counter[int] = Counter()
        """How many engine calls had each batch size."""
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def complete(self, request: Request) -> Completion:
        """See `Policy`."""
        if self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._serve())
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        self._wake.set()
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
            if len(self._waiting) < self.max_batch:
                await asyncio.sleep(self.max_wait_s)
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
                raise GemError(f"{len(completions)} completions for {len(requests)} requests.")
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), completion in zip(batch, completions, strict=True):
            if not future.done():  # its episode may have met a deadline meanwhile
                future.set_result(completion)


def failed_fraction(episodes: Sequence[Episode]) -> float:
    """Fraction of the episodes that broke (environment error, deadline, abort)."""
    return sum(e.stop_reason.failed for e in episodes) / len(episodes) if episodes else 0.0


def require_healthy(episodes: Sequence[Episode], max_failed: float = 0.5) -> None:
    """Raise GemError when more than ``max_failed`` of a batch broke: that is no experiment."""
    share = failed_fraction(episodes)
    if share > max_failed:
        reasons = Counter(e.error or e.stop_reason.value for e in episodes if e.stop_reason.failed)
        reason, count = reasons.most_common(1)[0]
        raise GemError(
            f"{share:.0%} of the batch's {len(episodes)} episodes failed; most often "
            f"({count}x): {reason}. Fix the environment, or raise its deadlines."
        )


# -- environments that may block --------------------------------------------------------------


def _feeder(machine: EpisodeMachine, completion: Completion) -> Callable[[], list[int] | None]:
    return lambda: machine.feed(completion)


def _step_deadline(machine: EpisodeMachine) -> float | None:
    """Wall seconds for one environment call; None = call it inline, it cannot block."""
    limit = machine.limits.turn_deadline_s
    if limit is None and getattr(machine.env, "slow", False):
        return SLOW_ENV_DEADLINE_S
    return limit


def _left(ends_at: float | None, cap: float | None = None) -> float | None:
    """Seconds until ``ends_at``, at most ``cap``; None where nothing limits."""
    left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
    return min((x for x in (left, cap) if x is not None), default=None)


def _in_thread(call: Callable[[], T]) -> Future[T]:
    """Run ``call`` in a daemon thread: a hung environment must not keep the process alive."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="gem-env").start()
    return future


def _late(machine: EpisodeMachine, seconds: float | None) -> None:
    machine.abort(StopReason.DEADLINE, f"the environment did not answer within {seconds:g} s")


async def _in_env(
    machine: EpisodeMachine, call: Callable[[], list[int] | None], ends_at: float | None
) -> list[int] | None:
    """Run start()/feed(): inline for fast environments, else in a thread under a deadline."""
    deadline = _step_deadline(machine)
    if deadline is None:
        return call()
    limit = _left(ends_at, deadline)
    waiting: Awaitable[Any] = asyncio.shield(asyncio.wrap_future(_in_thread(call)))
    try:
        result: list[int] | None = await asyncio.wait_for(waiting, limit)
        return result
    except asyncio.TimeoutError:
        _late(machine, limit)
        return None


def _step_all(
    calls: Sequence[tuple[EpisodeMachine, Callable[[], list[int] | None]]], started: float
) -> list[list[int] | None]:
    """Run one environment call per machine; blocking ones side by side, each under its deadline."""
    futures: dict[int, tuple[Future[list[int] | None], float | None]] = {}
    results: list[list[int] | None] = [None] * len(calls)
    for slot, (machine, call) in enumerate(calls):
        deadline = _step_deadline(machine)
        whole = machine.limits.episode_deadline_s
        if whole is not None and time.monotonic() > started + whole:
            machine.abort(StopReason.DEADLINE, f"the episode took longer than {whole:g} s")
        elif deadline is None:
            results[slot] = call()
        else:
            ends_at = None if whole is None else started + whole
            futures[slot] = (_in_thread(call), _left(ends_at, deadline))
    began = time.monotonic()
    for slot, (future, limit) in futures.items():
        left = None if limit is None else max(0.0, began + limit - time.monotonic())
        wait_futures([future], left)
        try:
            results[slot] = future.result(0)
        except FutureTimeoutError:
            if not future.done():
                _late(calls[slot][0], limit)
            else:
                raise
    return results
