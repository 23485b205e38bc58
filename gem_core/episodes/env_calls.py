"""Calls of the environments of episodes: directly, in threads, in other processes.

Environments that may block are called in threads (`gem_core.episodes.env_threads`), so that neither
the event loop nor the other episodes wait, and a deadline ends an episode whose environment hangs.
A deadline that `Limits` sets holds for every environment. Where it sets none, a call may take
`DEFAULT_DEADLINE_S`; environments that cannot block are then called directly (`never_blocks`).
Environments in worker processes (`gem_core.execution.workers`) and behind servers
(`gem_core.execution.server_client`) need no threads here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import wait as wait_futures
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from gem_core.env.blocking import never_blocks
from gem_core.episodes.data import StopReason
from gem_core.episodes.env_threads import ThreadedCall, env_threads
from gem_core.episodes.machine_calls import CloseCall, MachineCall
from gem_core.episodes.pacing import pace

if TYPE_CHECKING:
    from gem_core.env.remote.outcome import Outcome
    from gem_core.episodes.machine import EpisodeMachine

DEFAULT_DEADLINE_S = 60.0
"""Wall seconds of one call of an environment that may block, where the limits set none."""


def call_deadline(machine: EpisodeMachine) -> float | None:
    """Return the wall seconds for one environment call; ``None`` = it is called directly."""
    limits = machine.limits
    if limits.turn_deadline_s is not None:
        return limits.turn_deadline_s
    if limits.episode_deadline_s is None and never_blocks(machine.env):
        return None
    return DEFAULT_DEADLINE_S


def seconds_left(ends_at: float | None, cap: float | None = None) -> float | None:
    """Return the seconds until ``ends_at``, at most ``cap``; ``None`` where there is no limit."""
    if ends_at is None:
        return cap
    left = max(0.0, ends_at - time.monotonic())
    return left if cap is None else min(left, cap)


def _give_up_late(machine: EpisodeMachine, call: ThreadedCall[Any], ends_at: float | None) -> bool:
    """Give up a call in a thread that has passed its limit or the episode's; return whether."""
    call_over = call.left() <= 0  # asked once: time goes on
    episode_over = ends_at is not None and time.monotonic() >= ends_at
    if call.future.done() or not (call_over or episode_over):
        return False
    env_threads().abandon(call)
    _abort_unanswered(machine, call.limit_s if call_over else machine.limits.episode_deadline_s)
    return True


def _abort_unanswered(machine: EpisodeMachine, seconds: float | None) -> None:
    where = f"{machine.env_id}, seed {machine.seed}"
    message = f"{where}: the environment did not answer within {seconds:g} s"
    machine.abort(StopReason.DEADLINE, message, close=False)


async def call_env(
    call: MachineCall, deadline: float | None, ends_at: float | None = None
) -> list[int] | None:
    """Make a call: where the environment lives, directly if it cannot block, or in a thread."""
    if call.remote_env is not None:
        return await _call_remote_env(call, ends_at)
    if deadline is None:
        return call.run()
    in_thread = env_threads().submit(call.run, deadline)
    future = asyncio.wrap_future(in_thread.future)
    while not future.done() and not _give_up_late(call.machine, in_thread, ends_at):
        await asyncio.wait([future], timeout=seconds_left(ends_at, max(0.0, in_thread.left())))
        env_threads().give_up_late()
    return future.result() if future.done() else None


async def _call_remote_env(call: MachineCall, ends_at: float | None) -> list[int] | None:
    outcome = call.submit()
    if outcome is None:
        return call.machine.ready
    try:
        await _wait_until_done(outcome, seconds_left(ends_at))
    finally:  # also where the episode is cancelled
        call.count_seconds()
    return _receive(call, outcome)


async def _wait_until_done(outcome: Outcome[Any], seconds: float | None) -> None:
    """Wait for an answer, but not to cancel it or to take its error."""
    turns = pace()
    waiter: asyncio.Future[None] = turns.loop.create_future()
    outcome.add_done_callback(lambda _: turns.release(waiter))
    if seconds is None:
        await waiter
    else:
        await asyncio.wait([waiter], timeout=seconds)


def _receive(call: MachineCall, outcome: Outcome[Any]) -> list[int] | None:
    """Take what was answered; without an answer the episode has passed its deadline."""
    if outcome.done():
        return call.receive(outcome)
    _abort_unanswered(call.machine, call.machine.limits.episode_deadline_s)
    return None


async def close_env(machine: EpisodeMachine) -> None:
    """Close the environment of an episode that is over, unless it is closed already."""
    if machine.needs_close:
        await call_env(CloseCall(machine), call_deadline(machine))


def step_all(calls: Sequence[MachineCall], started: float | None) -> list[list[int] | None]:
    """Make one call per machine; those that may block run concurrently, each with its deadline.

    Args:
        calls: what to call.
        started: ``time.monotonic()`` at the start of the episodes; ``None`` = they are over.
    """
    results: list[list[int] | None] = [None] * len(calls)
    waiting: list[tuple[int, ThreadedCall[list[int] | None], float | None]] = []
    elsewhere: list[tuple[int, float | None]] = []
    direct: list[int] = []
    for slot, call in enumerate(calls):
        machine = call.machine
        whole = machine.limits.episode_deadline_s
        ends_at = None if whole is None or started is None else started + whole
        deadline = call_deadline(machine)
        if ends_at is not None and time.monotonic() >= ends_at:
            message = f"the episode took longer than {whole:g} s"
            machine.abort(StopReason.DEADLINE, message, close=False)
        elif call.remote_env is not None:
            elsewhere.append((slot, ends_at))
        elif deadline is None:
            direct.append(slot)
        else:
            waiting.append((slot, env_threads().submit(call.run, deadline), ends_at))
    outcomes = _submit_all([calls[slot] for slot, _ in elsewhere])
    for slot in direct:  # meanwhile the others work
        results[slot] = calls[slot].run()
    for (slot, ends_at), outcome in zip(elsewhere, outcomes, strict=True):
        if outcome is None:
            results[slot] = calls[slot].machine.ready
        else:
            outcome.wait(seconds_left(ends_at))
            calls[slot].count_seconds()
            results[slot] = _receive(calls[slot], outcome)
    for slot, in_thread, ends_at in waiting:
        results[slot] = _wait_for(calls[slot].machine, in_thread, ends_at)
    return results


def _submit_all(calls: Sequence[MachineCall]) -> list[Outcome[Any] | None]:
    """Begin calls of environments that live elsewhere, in one write to each worker."""
    pools = {env.pool for call in calls if (env := call.remote_env) is not None}
    with ExitStack() as stack:
        for pool in pools:
            stack.enter_context(pool.together())
        return [call.submit() for call in calls]


def _wait_for(
    machine: EpisodeMachine, call: ThreadedCall[list[int] | None], ends_at: float | None
) -> list[int] | None:
    """Wait for a call in a thread until its deadline; return its result."""
    while not call.future.done() and not _give_up_late(machine, call, ends_at):
        wait_futures([call.future], seconds_left(ends_at, max(0.0, call.left())))
        env_threads().give_up_late()
    return call.future.result() if call.future.done() else None
