"""The loops that play episodes with a generation engine.

* `play`: one episode with an asynchronous `Policy`.
* `play_many`: many episodes at the same time; none waits for another.
* `play_batch`: many episodes in lockstep with a synchronous `BatchPolicy` (one engine call per
  turn), for engines that only take batches.
* `MicroBatcher`: makes a `Policy` of a `BatchPolicy` by collecting the requests of concurrent
  episodes into one engine call.

How an environment is called, and for how long, is in `gem_core.episodes.env_calls`. The episodes of
one event loop work in turns (`gem_core.episodes.pacing`), so that they do not hold it up.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gem_core.episodes.data import Completion, Episode, StopReason
from gem_core.episodes.env_calls import (
    call_deadline,
    call_env,
    close_env,
    seconds_left,
    step_all,
)
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.machine_calls import CloseCall, FeedCall, StartCall
from gem_core.episodes.pacing import pace
from gem_core.errors import GemError, require_kind, require_methods


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


_MAKE_MACHINE = "EpisodeMachine(env, context, limits, seed=...) makes one."


def check_machines(where: str, machines: Sequence[EpisodeMachine]) -> None:
    """Check what is to be played, before any of it begins.

    Raises:
        KindError: it is not a sequence of machines.
    """
    for machine in machines:
        require_kind(f"{where}: what it plays", machine, EpisodeMachine, _MAKE_MACHINE)


def check_policy(where: str, policy: Policy) -> None:
    """Check that a policy is an asynchronous one.

    Raises:
        KindError: it is not.
    """
    hint = "MicroBatcher(policy) makes one of a policy that takes batches."
    require_methods(f"{where}: its policy", policy, ("complete",), hint)


def _check_batch_policy(where: str, policy: BatchPolicy) -> None:
    hint = "play_many takes a policy with complete()."
    require_methods(f"{where}: its policy", policy, ("complete_batch",), hint)


async def play(machine: EpisodeMachine, policy: Policy) -> Episode:
    """Play one episode to its end.

    Errors of the environment and deadlines are recorded in the episode. Errors of the policy, and
    of what renders the prompts, are raised.

    Raises:
        KindError: an argument is of another kind.
    """
    check_machines("play", [machine])
    check_policy("play", policy)
    limit = machine.limits.episode_deadline_s
    ends_at = None if limit is None else time.monotonic() + limit
    deadline = call_deadline(machine)
    turns = pace()
    try:
        await turns.turn()
        prompt_ids = await call_env(StartCall(machine), deadline, ends_at)
        while prompt_ids is not None:
            began = time.perf_counter()
            request = Request(prompt_ids, machine.max_tokens, machine)
            try:
                completion = await asyncio.wait_for(policy.complete(request), seconds_left(ends_at))
            except asyncio.TimeoutError:
                if ends_at is None or time.monotonic() < ends_at:
                    raise  # the engine's own timeout, not the deadline of the episode
                message = f"no completion within {limit} s of the episode"
                machine.abort(StopReason.DEADLINE, message, close=False)
                break
            machine.add_seconds("policy", time.perf_counter() - began)
            await turns.turn()
            prompt_ids = await call_env(FeedCall(machine, completion), deadline, ends_at)
    except GeneratorExit:  # no event loop any more
        machine.abort(StopReason.ABORTED, "the episode was given up")
        raise
    except BaseException as error:  # also a cancellation
        machine.abort(StopReason.ABORTED, f"the episode was given up: {error!r}", close=False)
        await close_env(machine)
        raise
    await close_env(machine)
    return machine.episode


async def play_many(
    machines: Iterable[EpisodeMachine], policy: Policy, *, concurrency: int = 1024
) -> list[Episode]:
    """Play all ``machines``, at most ``concurrency`` at a time; return the episodes in their order.

    No episode waits for another. The first error of the policy cancels the others and is raised.
    Every environment is closed in any case. Episodes whose environment failed are among those that
    are returned: `require_healthy` raises where these are too many.

    Raises:
        KindError: an argument is of another kind.
    """
    require_kind("play_many: its machines", machines, Iterable, _MAKE_MACHINE)
    return await play_all(list(machines), policy, asyncio.Semaphore(concurrency))


async def play_all(
    machines: Sequence[EpisodeMachine], policy: Policy, gate: asyncio.Semaphore
) -> list[Episode]:
    """Play all ``machines`` as `play_many` does, each when ``gate`` lets it.

    Args:
        machines: what is played.
        policy: the engine.
        gate: bounds the episodes that are played at the same time, also over several calls.

    Raises:
        KindError: an argument is of another kind.
    """
    check_machines("play_many", machines)
    check_policy("play_many", policy)

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
        await asyncio.gather(*map(close_env, machines))
        raise


def play_batch(machines: Sequence[EpisodeMachine], policy: BatchPolicy) -> list[Episode]:
    """Play all ``machines`` turn by turn, with one engine call per turn for all running episodes.

    The episodes are returned in the order of the machines; as to failed ones, see `play_many`.

    Raises:
        KindError: an argument is of another kind.
    """
    require_kind("play_batch: its machines", machines, Sequence, _MAKE_MACHINE)
    check_machines("play_batch", machines)
    _check_batch_policy("play_batch", policy)
    try:
        _play_batch(machines, policy)
    except BaseException as error:
        for machine in machines:
            message = f"the episode was given up: {error!r}"
            machine.abort(StopReason.ABORTED, message, close=False)
        raise
    finally:
        step_all([CloseCall(m) for m in machines if m.needs_close], None)
    return [machine.episode for machine in machines]


def _play_batch(machines: Sequence[EpisodeMachine], policy: BatchPolicy) -> None:
    started = time.monotonic()
    prompts = step_all([StartCall(m) for m in machines], started)
    while any(prompt is not None for prompt in prompts):
        active = [
            (slot, Request(prompt, machine.max_tokens, machine))
            for slot, (machine, prompt) in enumerate(zip(machines, prompts, strict=True))
            if prompt is not None
        ]
        began = time.perf_counter()
        completions = policy.complete_batch([request for _, request in active])
        spent = time.perf_counter() - began
        calls: list[FeedCall] = []
        for (_, request), completion in zip(active, completions, strict=True):
            request.machine.add_seconds("policy", spent / len(active))
            calls.append(FeedCall(request.machine, completion))
        prompts = [None] * len(machines)
        for (slot, _), prompt in zip(active, step_all(calls, started), strict=True):
            prompts[slot] = prompt


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
        _check_batch_policy("MicroBatcher", policy)
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


def failed_fraction(episodes: Sequence[Episode]) -> float:
    """Return the fraction of episodes that failed (environment error, deadline, abort)."""
    return sum(e.stop_reason.failed for e in episodes) / len(episodes) if episodes else 0.0


def require_healthy(episodes: Sequence[Episode], max_failed: float = 0.5) -> None:
    """Check that not too many episodes of a batch failed.

    Args:
        episodes: the episodes of the batch.
        max_failed: the largest fraction of them that may have failed.

    Raises:
        GemError: more episodes failed; the message has the most frequent reason, and the first.
    """
    share = failed_fraction(episodes)
    if share > max_failed:
        reasons = Counter(_reason(e) for e in episodes if e.stop_reason.failed)
        reason, count = reasons.most_common(1)[0]
        first = next(iter(reasons))
        also = "" if first == reason else f"; the first: {first}"
        raise GemError(
            f"{share:.0%} of the batch's {len(episodes)} episodes failed; most often "
            f"({count}x): {reason}{also}. Fix the environment, or raise its deadlines."
        )


def _reason(episode: Episode) -> str:
    """Return why an episode failed, without what differs from seed to seed."""
    text = episode.error or episode.stop_reason.value
    return text.replace(f"{episode.env_id}, seed {episode.seed}: ", f"{episode.env_id}: ")
