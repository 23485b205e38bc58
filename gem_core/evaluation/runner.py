"""Plays the items of an evaluation and records each as soon as it is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol, TypeAlias

from gem_core.episodes.data import Completion, Episode
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.rollout import BatchPolicy, Request, play, play_batch
from gem_core.evaluation.items import Item
from gem_core.evaluation.rows import Failure, ItemRow, error_row, row_of
from gem_core.policies.endpoint.usage import Usage
from gem_core.policies.failures import EpisodeOver, ItemError

Record: TypeAlias = Callable[[ItemRow, "Episode | None"], None]
"""Receives an item that is over, and its episode if there is one."""
MakeMachine: TypeAlias = Callable[[Item], EpisodeMachine]


class ItemPolicy(Protocol):
    """An asynchronous policy that counts what each item uses."""

    async def complete(self, request: Request) -> Completion:
        """See `gem_core.episodes.rollout.Policy`; `ItemError` gives up the item alone."""

    def finish(self, item: int) -> Usage | None:
        """Return what an item used, and forget the item; here nothing is counted."""
        return None

    async def close(self) -> None:
        """Release what is held open; here nothing is."""
        return


async def play_items(
    items: Iterable[Item],
    make: MakeMachine,
    policy: ItemPolicy,
    record: Record,
    *,
    concurrency: int,
) -> None:
    """Play items, at most ``concurrency`` at a time; no item waits for another.

    An item that the policy gives up is recorded with its error. Any other error of the policy
    cancels the items under way, which are then not recorded, and is raised.
    """
    remaining = iter(items)

    async def worker() -> None:
        for item in remaining:
            await _play(item, make(item), policy, record)

    workers = [asyncio.ensure_future(worker()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    finally:
        await policy.close()


async def _play(item: Item, machine: EpisodeMachine, policy: ItemPolicy, record: Record) -> None:
    began = time.perf_counter()
    episode: Episode | None = None
    failure: Failure | None = None
    try:
        episode = await play(machine, policy)
    except EpisodeOver:
        episode = machine.episode
    except ItemError as error:
        failure = Failure(error.kind, str(error))
    seconds = time.perf_counter() - began
    usage = policy.finish(item.index)
    if episode is not None:
        record(row_of(item, episode, seconds, usage), episode)
    else:
        assert failure is not None
        record(error_row(item, machine.env_id, failure, seconds, usage), machine.episode)


def play_items_in_batches(
    items: Iterable[Item],
    make: MakeMachine,
    policy: BatchPolicy,
    record: Record,
    *,
    concurrency: int,
) -> None:
    """Play items with an engine that takes batches, ``concurrency`` items after another."""
    for batch in _batches(items, concurrency):
        began = time.perf_counter()
        episodes = play_batch([make(item) for item in batch], policy)
        seconds = (time.perf_counter() - began) / len(batch)
        for item, episode in zip(batch, episodes, strict=True):
            record(row_of(item, episode, seconds), episode)


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
