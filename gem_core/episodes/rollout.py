"""The loops that play episodes with a generation engine.

* `play`: one episode with an asynchronous `Policy`.
* `play_many`: many episodes at the same time; none waits for another.
* `play_batch`: many episodes in lockstep with a synchronous `BatchPolicy` (one engine call per
  turn), for engines that only take batches.

The loops ask engines through `gem_core.episodes.policy`, and call environments, each for so long,
through `gem_core.episodes.env_calls`. The episodes of one event loop work in turns
(`gem_core.episodes.pacing`), so that they do not hold it up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

from gem_core.episodes.data import Episode, StopReason
from gem_core.episodes.env_calls import call_deadline, call_env, close_env, seconds_left, step_all
from gem_core.episodes.health import failed_fraction, require_healthy
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.machine_calls import CloseCall, FeedCall, StartCall
from gem_core.episodes.micro_batcher import MicroBatcher
from gem_core.episodes.pacing import pace
from gem_core.episodes.policy import BatchPolicy, Policy, Request, check_batch_policy, check_policy
from gem_core.errors import require_kind

__all__ = [
    "BatchPolicy",
    "MicroBatcher",
    "Policy",
    "Request",
    "check_machines",
    "failed_fraction",
    "play",
    "play_all",
    "play_batch",
    "play_many",
    "require_healthy",
]

_MAKE_MACHINE = "EpisodeMachine(env, context, limits, seed=...) makes one."


def check_machines(where: str, machines: Sequence[EpisodeMachine]) -> None:
    """Check what is to be played, before any of it begins.

    Raises:
        KindError: it is not a sequence of machines.
    """
    for machine in machines:
        require_kind(f"{where}: what it plays", machine, EpisodeMachine, _MAKE_MACHINE)


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

    The gate bounds the episodes that are played at the same time, also over several calls.

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
    check_batch_policy("play_batch", policy)
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
