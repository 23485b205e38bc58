"""Batches of groups for a training loop of one's own: who is waited for, what becomes of the rest.

`play_many` plays a list and waits for all of it. `Rollouts` draws groups (episodes that share their
initial state, as GRPO and RLOO need them; a single episode is a group, too) from an endless source
and returns a batch as soon as enough whole groups have ended. The five trainers own their batches
and do not use it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, TypeAlias, get_args

from gem_core.episodes.data import Episode
from gem_core.episodes.ended_groups import EndedGroup, RolloutCounts
from gem_core.episodes.health import require_healthy
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.policy import Policy, check_policy
from gem_core.episodes.rollout import check_machines, play_all
from gem_core.errors import GemError, require_kind

__all__ = ["EndedGroup", "RolloutCounts", "Rollouts", "Unfinished"]

Unfinished: TypeAlias = Literal["cancel", "carry"]
"""What becomes of the groups that a batch did not wait for."""


@dataclass(slots=True)
class _Running:
    machines: Sequence[EpisodeMachine]
    number: int
    began: int
    task: asyncio.Task[list[Episode]] = field(init=False)


class Rollouts:
    """Plays groups of episodes and gives batches of those that have ended.

    Which groups are in a batch decides what is learned:

    * ``oversample = 1`` waits for every group that was begun. Nothing is biased; the slowest
      episode decides how long a batch takes.
    * ``oversample > 1`` with ``unfinished = "cancel"`` begins more groups than the batch needs and
      gives up the rest when it is full (early stop). Episodes that take long, by
      many turns, long completions or slow tools, are trained on less often than they occur: the
      estimate of the gradient is biased towards short ones. ``rollouts/cancelled`` counts them.
    * ``unfinished = "carry"`` lets them go on and puts them in a later batch (partial rollouts).
      No episode is lost, but the completions of one episode are of several policies: their
      log-probabilities are those of the policy that sampled each, so that a loss needs these
      (importance weights), not those of the newest policy. ``rollouts/carried`` counts them. Short
      episodes are too frequent in the first batches only.

    With ``oversample = 1`` the same seeds give the same batches; otherwise timing decides.

    All calls belong to one event loop. Carried episodes go on while it runs; a training step that
    holds it up lets them wait, and wall-time limits of episodes go on.

    Args:
        groups: machines, as many groups as are needed; each group's machines are played together.
        policy: the engine.
        oversample: groups that are under way when a batch begins, relative to those that it needs;
            rounded up.
        unfinished: see above.
        max_batches: a carried group that has not ended in so many batches, that in which it began
            included, is given up; ``None``: never.
        concurrency: largest number of episodes that are played at the same time.

    Raises:
        KindError: an argument is of another kind.
        ValueError: an argument is out of its range.

    Example:
        >>> async def train(source, policy, update):
        ...     rollouts = Rollouts(source, policy, oversample=1.25, unfinished="carry")
        ...     async with rollouts:
        ...         for step in range(100):
        ...             update(await rollouts.batch(64))
    """

    def __init__(
        self,
        groups: Iterable[Sequence[EpisodeMachine]],
        policy: Policy,
        *,
        oversample: float = 1.0,
        unfinished: Unfinished = "cancel",
        max_batches: int | None = None,
        concurrency: int = 1024,
    ) -> None:
        _check(oversample, unfinished, max_batches, concurrency)
        require_kind("Rollouts(groups)", groups, Iterable, "It yields lists of EpisodeMachines.")
        check_policy("Rollouts", policy)
        self._source = iter(groups)
        self._policy = policy
        self._oversample = oversample
        self._unfinished = unfinished
        self._max_batches = max_batches
        self._gate = asyncio.Semaphore(concurrency)
        self._running: dict[asyncio.Task[list[Episode]], _Running] = {}
        self._batch = 0
        self.counts = RolloutCounts()

    async def batch(self, groups: int) -> list[EndedGroup]:
        """Return so many ended groups, in the order in which they were begun.

        Raises:
            GemError: the source has no more groups, and fewer are left; or every episode of the
                batch failed, with the reason.
        """
        ended = [group async for group in self.stream(groups)]
        played = [episode for group in ended for episode in group.episodes]
        if all(episode.stop_reason.failed for episode in played):
            require_healthy(played)
        return sorted(ended, key=lambda group: group.number)

    async def stream(self, groups: int) -> AsyncIterator[EndedGroup]:
        """Yield so many groups, each as soon as all its episodes have ended, so that it can be
        scored while others are played.

        The first error of the policy ends all groups and is raised. If the caller leaves it early,
        the groups under way go on and are in the next batch.

        Raises:
            GemError: the source has no more groups, and fewer are left.
        """
        self._batch += 1
        self._begin(math.ceil(groups * self._oversample))
        for position in range(groups):
            yield await self._next_ended(groups - position)
        late = [run for run in self._running.values() if self._is_late(run)]
        if self._unfinished == "cancel":
            late = list(self._running.values())
            self.counts.cancelled += len(late)
        else:
            self.counts.stale += len(late)
        await self._give_up(late)

    def _begin(self, wanted: int) -> None:
        """Begin groups until ``wanted`` are under way or the source ends."""
        while len(self._running) < wanted:
            machines = next(self._source, None)
            if machines is None:
                return
            require_kind("A group of Rollouts", machines, Sequence, "A list of EpisodeMachines.")
            check_machines("Rollouts", machines)
            run = _Running(machines, self.counts.begun, self._batch)
            run.task = asyncio.ensure_future(play_all(machines, self._policy, self._gate))
            self._running[run.task] = run
            self.counts.begun += 1

    async def _next_ended(self, needed: int) -> EndedGroup:
        """Wait for the next group to end; of several, take the one begun first."""
        if len(self._running) < needed:
            raise GemError(
                f"The source of groups ended: {len(self._running)} groups are under way, the batch "
                f"needs {needed} more."
            )
        try:
            done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            run = min((self._running[task] for task in done), key=lambda one: one.number)
            episodes = run.task.result()
        except BaseException:  # an error of the policy, or a cancellation
            await self._end(list(self._running.values()))
            raise
        del self._running[run.task]
        self.counts.returned += 1
        self.counts.carried += run.began < self._batch
        return EndedGroup(episodes, run.number, run.began, self._batch)

    def _is_late(self, run: _Running) -> bool:
        span = self._batch - run.began + 1
        return self._max_batches is not None and span >= self._max_batches

    async def _give_up(self, runs: Sequence[_Running]) -> None:
        """End groups; an error of the policy in one of them is raised, as in those waited for."""
        for error in await self._end(runs):
            await self._end(list(self._running.values()))
            raise error

    async def _end(self, runs: Sequence[_Running]) -> list[BaseException]:
        """Cancel groups, whose environments are closed; return the errors that they ended with."""
        for run in runs:
            del self._running[run.task]
            run.task.cancel()
        ends = await asyncio.gather(*(run.task for run in runs), return_exceptions=True)
        given_up = asyncio.CancelledError
        return [e for e in ends if isinstance(e, BaseException) and not isinstance(e, given_up)]

    async def close(self) -> None:
        """Give up all groups under way, which count as cancelled."""
        runs = list(self._running.values())
        self.counts.cancelled += len(runs)
        await self._give_up(runs)

    async def __aenter__(self) -> Rollouts:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _check(oversample: float, unfinished: str, max_batches: int | None, concurrency: int) -> None:
    if not 1 <= oversample < math.inf:
        raise ValueError(f"oversample must be at least 1 and finite, not {oversample}.")
    if unfinished not in get_args(Unfinished):
        raise ValueError(
            f"unfinished is one of {', '.join(get_args(Unfinished))}, not {unfinished!r}."
        )
    if max_batches is not None and max_batches < 1:
        raise ValueError(f"max_batches must be at least 1, not {max_batches}.")
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}.")
