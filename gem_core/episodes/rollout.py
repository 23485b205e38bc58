"""The loops that play episodes with a generation engine.

* `play`: one episode with an asynchronous `Policy`.
* `play_many`: many episodes at the same time; none waits for another.
* `play_batch`: many episodes in lockstep with a synchronous `BatchPolicy` (one engine call per
  turn), for engines that only take batches.
* `MicroBatcher`: makes a `Policy` of a `BatchPolicy` by collecting the requests of concurrent
  episodes into one engine call.

Environments that may block are called in threads (`gem_core.episodes.env_threads`), so that neither
the event loop nor the other episodes wait, and a deadline ends an episode whose environment hangs.
A deadline that `Limits` sets holds for every environment. Where it sets none, a call may take
`DEFAULT_DEADLINE_S`; environments that cannot block are then called directly (`never_blocks`).
Environments in worker processes (`gem_core.workers`) need no threads here: their calls are futures.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_futures
from dataclasses import dataclass
from typing import Any, Protocol

from gem_core.episodes.data import Completion, Episode, StopReason
from gem_core.episodes.env_threads import Call, env_threads
from gem_core.episodes.machine import EpisodeMachine
from gem_core.errors import GemError
from gem_core.workers.blocking import never_blocks

DEFAULT_DEADLINE_S = 60.0
"""Wall seconds of one call of an environment that may block, where the limits set none."""


@dataclass(slots=True)
class Request:
    """A request to an engine: continue ``prompt_ids`` by at most ``max_tokens`` tokens.

    Attributes:
        prompt_ids: the prompt.
        max_tokens: largest number of tokens of the completion.
        machine: identifies the episode (sticky routing, text or message prompts); engines must not
            change it.
        seed: decides what a seeded engine draws, below ``2 ** 63``; ``None`` = as the machine says.
    """

    prompt_ids: list[int]
    max_tokens: int
    machine: EpisodeMachine
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is None and self.machine is not None:
            self.seed = self.machine.request_seed


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

    Errors of the environment and deadlines are recorded in the episode. Errors of the policy are
    raised.
    """
    limit = machine.limits.episode_deadline_s
    ends_at = None if limit is None else time.monotonic() + limit
    deadline = _call_deadline(machine)
    try:
        prompt_ids = await _in_env(_start(machine), deadline, ends_at)
        while prompt_ids is not None:
            began = time.perf_counter()
            request = Request(prompt_ids, machine.max_tokens, machine)
            try:
                completion = await asyncio.wait_for(policy.complete(request), _left(ends_at))
            except asyncio.TimeoutError:
                if ends_at is None or time.monotonic() < ends_at:
                    raise  # the engine's own timeout, not the deadline of the episode
                message = f"no completion within {limit} s of the episode"
                machine.abort(StopReason.DEADLINE, message, close=False)
                break
            machine.add_seconds("policy", time.perf_counter() - began)
            prompt_ids = await _in_env(_feed(machine, completion), deadline, ends_at)
    except GeneratorExit:  # no event loop any more
        machine.abort(StopReason.ABORTED, "the episode was given up")
        raise
    except BaseException as error:  # also a cancellation
        machine.abort(StopReason.ABORTED, f"the episode was given up: {error!r}", close=False)
        await _close(machine)
        raise
    await _close(machine)
    return machine.episode


async def play_many(
    machines: Iterable[EpisodeMachine], policy: Policy, *, concurrency: int = 1024
) -> list[Episode]:
    """Play all ``machines``, at most ``concurrency`` at a time; return the episodes in their order.

    No episode waits for another. The first error of the policy cancels the others and is raised.
    Every environment is closed in any case.
    """
    machines = list(machines)
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
        for machine in machines:
            machine.abort(StopReason.ABORTED, "the episode was never begun", close=False)
        await asyncio.gather(*map(_close, machines))
        raise


def play_batch(machines: Sequence[EpisodeMachine], policy: BatchPolicy) -> list[Episode]:
    """Play all ``machines`` turn by turn, with one engine call per turn for all running episodes.

    The episodes are returned in the order of the machines.
    """
    try:
        _play_batch(machines, policy)
    except BaseException as error:
        for machine in machines:
            message = f"the episode was given up: {error!r}"
            machine.abort(StopReason.ABORTED, message, close=False)
        raise
    finally:
        _step_all([_closing(m) for m in machines if m.needs_close], None)
    return [machine.episode for machine in machines]


def _play_batch(machines: Sequence[EpisodeMachine], policy: BatchPolicy) -> None:
    started = time.monotonic()
    prompts = _step_all([_start(m) for m in machines], started)
    while any(prompt is not None for prompt in prompts):
        active = [
            (slot, Request(prompt, machine.max_tokens, machine))
            for slot, (machine, prompt) in enumerate(zip(machines, prompts, strict=True))
            if prompt is not None
        ]
        began = time.perf_counter()
        completions = policy.complete_batch([request for _, request in active])
        spent = time.perf_counter() - began
        calls: list[_EnvCall] = []
        for (_, request), completion in zip(active, completions, strict=True):
            request.machine.add_seconds("policy", spent / len(active))
            calls.append(_feed(request.machine, completion))
        prompts = [None] * len(machines)
        for (slot, _), prompt in zip(active, _step_all(calls, started), strict=True):
            prompts[slot] = prompt


class MicroBatcher:
    """A `Policy` that collects concurrent requests into calls of a `BatchPolicy`.

    A call is made when ``max_batch`` requests wait, or ``max_wait_s`` after the first of them. The
    engine runs in one worker thread; while it is busy, requests are collected for the next call.
    Use it in one event loop, as an asynchronous context manager, or call `close` at the end.
    """

    def __init__(
        self, policy: BatchPolicy, *, max_batch: int = 256, max_wait_s: float = 0.002
    ) -> None:
        self.policy = policy
        self.max_batch = max_batch
        self.max_wait_s = max_wait_s
        self.calls: Counter[int] = Counter()
        """Number of engine calls by batch size."""
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


def failed_fraction(episodes: Sequence[Episode]) -> float:
    """Return the fraction of episodes that failed (environment error, deadline, abort)."""
    return sum(e.stop_reason.failed for e in episodes) / len(episodes) if episodes else 0.0


def require_healthy(episodes: Sequence[Episode], max_failed: float = 0.5) -> None:
    """Check that not too many episodes of a batch failed.

    Args:
        episodes: the episodes of the batch.
        max_failed: the largest fraction of them that may have failed.

    Raises:
        GemError: more episodes failed; the message has the most frequent reason.
    """
    share = failed_fraction(episodes)
    if share > max_failed:
        reasons = Counter(_reason(e) for e in episodes if e.stop_reason.failed)
        reason, count = reasons.most_common(1)[0]
        raise GemError(
            f"{share:.0%} of the batch's {len(episodes)} episodes failed; most often "
            f"({count}x): {reason}. Fix the environment, or raise its deadlines."
        )


def _reason(episode: Episode) -> str:
    """Return why an episode failed, without what differs from seed to seed."""
    text = episode.error or episode.stop_reason.value
    return text.replace(f"{episode.env_id}, seed {episode.seed}: ", f"{episode.env_id}: ")


# -- environments that may block --------------------------------------------------------------


@dataclass(slots=True)
class _EnvCall:
    """A call of an environment: the reset, the step after a completion, or the closing.

    Attributes:
        machine: the episode.
        run: makes the call here and now.
        submit: makes it in a worker process; its future is ``None`` where there is nothing to do.
        receive: takes what the worker answered.
    """

    machine: EpisodeMachine
    run: Callable[[], list[int] | None]
    submit: Callable[[], Future[Any] | None]
    receive: Callable[[Future[Any]], list[int] | None]


def _start(machine: EpisodeMachine) -> _EnvCall:
    return _EnvCall(machine, machine.start, machine.submit_start, machine.receive)


def _feed(machine: EpisodeMachine, completion: Completion) -> _EnvCall:
    return _EnvCall(
        machine,
        lambda: machine.feed(completion),
        lambda: machine.submit_feed(completion),
        machine.receive,
    )


def _closing(machine: EpisodeMachine) -> _EnvCall:
    def close() -> None:
        machine.close()

    def receive(future: Future[Any]) -> None:
        machine.receive_close(future)

    return _EnvCall(machine, close, machine.submit_close, receive)


def _call_deadline(machine: EpisodeMachine) -> float | None:
    """Return the wall seconds for one environment call; ``None`` = it is called directly."""
    limits = machine.limits
    if limits.turn_deadline_s is not None:
        return limits.turn_deadline_s
    if limits.episode_deadline_s is None and never_blocks(machine.env):
        return None
    return DEFAULT_DEADLINE_S


def _left(ends_at: float | None, cap: float | None = None) -> float | None:
    """Return the seconds until ``ends_at``, at most ``cap``; ``None`` where there is no limit."""
    if ends_at is None:
        return cap
    left = max(0.0, ends_at - time.monotonic())
    return left if cap is None else min(left, cap)


def _late(machine: EpisodeMachine, call: Call[Any], ends_at: float | None) -> bool:
    """Return whether the call or the episode has passed its limit; then both are given up."""
    seconds = call.limit_s if call.left() <= 0 else machine.limits.episode_deadline_s
    episode_over = ends_at is not None and time.monotonic() >= ends_at
    if call.future.done() or (call.left() > 0 and not episode_over):
        return False
    env_threads().abandon(call)
    episode = f"{machine.env_id}, seed {machine.seed}"
    message = f"{episode}: the environment did not answer within {seconds:g} s"
    machine.abort(StopReason.DEADLINE, message, close=False)
    return True


async def _in_env(
    env_call: _EnvCall, deadline: float | None, ends_at: float | None = None
) -> list[int] | None:
    """Make a call: in the environment's worker, directly if it cannot block, or in a thread."""
    machine = env_call.machine
    if machine.worker_env is not None:
        submitted = env_call.submit()
        if submitted is None:
            return None
        await _until_done(submitted, _left(ends_at))
        return _received(env_call, submitted)
    if deadline is None:
        return env_call.run()
    call = env_threads().submit(env_call.run, deadline)
    future = asyncio.wrap_future(call.future)
    while not future.done() and not _late(machine, call, ends_at):
        await asyncio.wait([future], timeout=_left(ends_at, max(0.0, call.left())))
        env_threads().give_up_late()
    return future.result() if future.done() else None


async def _until_done(submitted: Future[Any], seconds: float | None) -> None:
    """Wait for a worker's answer, but not to cancel it or to take its error."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def answered(_: Future[Any]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    submitted.add_done_callback(answered)
    await asyncio.wait([waiter], timeout=seconds)


def _received(env_call: _EnvCall, submitted: Future[Any]) -> list[int] | None:
    """Take what a worker answered; without an answer the episode has passed its deadline."""
    if submitted.done():
        return env_call.receive(submitted)
    machine = env_call.machine
    limit = machine.limits.episode_deadline_s
    where = f"{machine.env_id}, seed {machine.seed}"
    message = f"{where}: the environment did not answer within {limit:g} s"
    machine.abort(StopReason.DEADLINE, message, close=False)
    return None


async def _close(machine: EpisodeMachine) -> None:
    """Close the environment of an episode that is over, unless it is closed already."""
    if machine.needs_close:
        await _in_env(_closing(machine), _call_deadline(machine))


def _step_all(calls: Sequence[_EnvCall], started: float | None) -> list[list[int] | None]:
    """Make one call per machine; those that may block run concurrently, each with its deadline.

    Args:
        calls: what to call.
        started: ``time.monotonic()`` at the start of the episodes; ``None`` = they are over.
    """
    results: list[list[int] | None] = [None] * len(calls)
    waiting: list[tuple[int, Call[list[int] | None], float | None]] = []
    in_workers: list[tuple[int, Future[Any], float | None]] = []
    for slot, env_call in enumerate(calls):
        machine = env_call.machine
        whole = machine.limits.episode_deadline_s
        ends_at = None if whole is None or started is None else started + whole
        deadline = _call_deadline(machine)
        if ends_at is not None and time.monotonic() >= ends_at:
            message = f"the episode took longer than {whole:g} s"
            machine.abort(StopReason.DEADLINE, message, close=False)
        elif machine.worker_env is not None:
            submitted = env_call.submit()
            if submitted is not None:
                in_workers.append((slot, submitted, ends_at))
        elif deadline is None:
            results[slot] = env_call.run()
        else:
            waiting.append((slot, env_threads().submit(env_call.run, deadline), ends_at))
    for slot, submitted, ends_at in in_workers:
        wait_futures([submitted], _left(ends_at))
        results[slot] = _received(calls[slot], submitted)
    for slot, call, ends_at in waiting:
        while not call.future.done() and not _late(calls[slot].machine, call, ends_at):
            wait_futures([call.future], _left(ends_at, max(0.0, call.left())))
            env_threads().give_up_late()
        if call.future.done():
            results[slot] = call.future.result()
    return results
