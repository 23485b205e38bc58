"""Batches of groups: order, over-sampling, groups that are given up or carried over."""

from __future__ import annotations

import asyncio
import math
from random import Random

import pytest

from gem_core.env.interface import Env
from gem_core.episodes.context import Context
from gem_core.episodes.data import Completion, StopReason
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.episodes.rollouts import Rollouts
from gem_core.errors import EpisodeStateError, GemError


class Two(Env):
    """Two turns; it never blocks, so that only the policy's waits decide who is first."""

    fast = True

    def __init__(self):
        super().__init__()
        self.turns = 0
        self.closed = 0

    def _reset(self, options):
        return "go", {}

    def _step(self, action):
        self.turns += 1
        return "on", 1.0, self.turns == 2, False, {"success": True} if self.turns == 2 else {}

    def close(self):
        self.closed += 1


class Paced:
    """A policy that needs ``waits[index]`` turns of the event loop for each completion."""

    def __init__(self, waits, broken=()):
        self.waits = waits
        self.broken = broken
        self.active = 0
        self.most = 0

    async def complete(self, request):
        index = request.machine.index
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            for _ in range(self.waits.get(index, 1)):
                await asyncio.sleep(0)
        finally:
            self.active -= 1
        if index in self.broken:
            raise OSError(f"engine failed at {index}")
        return Completion([98, 0], [-1.0, -1.0])


@pytest.fixture
def source(kit):
    """``source(size)``: endless groups of so many machines; ``made`` has all of them."""

    def groups(size=1, count=None):
        number = 0
        while count is None or number < count:
            machines = []
            for member in range(size):
                env = Two()
                context = Context(kit.template, kit.tokenizer, "append", None)
                index = number * size + member
                machine = EpisodeMachine(
                    env, context, Limits(), seed=number, group=number, index=index
                )
                groups.made.append(machine)
                machines.append(machine)
            yield machines
            number += 1

    groups.made = []
    return groups


def numbers(batch):
    return [group.number for group in batch]


def test_without_over_sampling_batches_are_those_of_the_source(source):
    async def run():
        async with Rollouts(source(2), Paced({0: 50, 3: 9})) as rollouts:
            return [await rollouts.batch(3) for _ in range(2)], rollouts.counts

    batches, counts = asyncio.run(run())
    assert [numbers(batch) for batch in batches] == [[0, 1, 2], [3, 4, 5]]
    members = [[episode.index for episode in group.episodes] for group in batches[1]]
    assert members == [[6, 7], [8, 9], [10, 11]]
    assert (counts.begun, counts.returned, counts.cancelled) == (6, 6, 0)
    assert len(source.made) == 12 and all(m.env.closed == 1 for m in source.made)


def test_a_group_is_given_as_soon_as_its_members_have_ended(source):
    async def run():
        order = []
        async with Rollouts(source(2), Paced({0: 60, 2: 30})) as rollouts:
            async for group in rollouts.stream(4):
                order.append(group.number)
                if group.number == 3:  # scored while others are played
                    with pytest.raises(EpisodeStateError, match="is not over"):
                        _ = source.made[0].episode
        return order

    assert asyncio.run(run()) == [2, 3, 1, 0]


def test_over_sampling_gives_up_the_slowest_and_counts_them(source):
    async def run():
        async with Rollouts(source(2), Paced({0: 10**6}), oversample=1.5) as rollouts:
            return await rollouts.batch(2), rollouts.counts

    batch, counts = asyncio.run(run())
    assert numbers(batch) == [1, 2]
    assert (counts.begun, counts.returned, counts.cancelled) == (3, 2, 1)
    assert counts.metrics() == {"rollouts/cancelled": pytest.approx(1 / 3), "rollouts/carried": 0}
    slow = source.made[0]
    assert slow.episode.stop_reason is StopReason.ABORTED and slow.env.closed == 1


def test_a_carried_group_is_in_a_later_batch_with_both_numbers(source):
    async def run():
        policy = Paced({0: 40})
        async with Rollouts(source(1), policy, oversample=2, unfinished="carry") as rollouts:
            batches = [await rollouts.batch(2) for _ in range(20)]
            return batches, rollouts.counts

    batches, counts = asyncio.run(run())
    (late,) = [group for batch in batches for group in batch if group.number == 0]
    assert late.began == 1 < late.ended
    assert late.episodes[0].stop_reason is StopReason.TERMINATED and late.episodes[0].success
    assert counts.carried >= 1 and counts.cancelled <= 2  # at the end of the loop
    assert counts.metrics()["rollouts/carried"] == counts.carried / 40


def test_a_group_that_is_carried_too_often_is_given_up(source):
    async def run():
        options = {"oversample": 2, "unfinished": "carry", "max_batches": 2}
        async with Rollouts(source(1), Paced({0: 10**6}), **options) as rollouts:
            first = await rollouts.batch(1)
            assert rollouts.counts.stale == 0
            second = await rollouts.batch(1)
            assert rollouts.counts.stale == 1 and source.made[0].env.closed == 1
            return [*first, *second]

    assert 0 not in numbers(asyncio.run(run()))


@pytest.mark.parametrize("unfinished", ["cancel", "carry"])
def test_nothing_is_lost_over_random_schedules(source, unfinished):
    """Begun = returned + cancelled + stale, no group twice, every environment closed once."""

    async def run(rng):
        source.made.clear()
        waits = {index: rng.choice([1, 3, 200]) for index in range(300)}
        options = {
            "oversample": rng.choice([1.0, 1.3, 2.0]),
            "unfinished": unfinished,
            "max_batches": rng.choice([None, 1, 3]),
            "concurrency": rng.randint(1, 9),
        }
        policy = Paced(waits)
        size = rng.randint(1, 3)
        async with Rollouts(source(size), policy, **options) as rollouts:
            batches = [await rollouts.batch(rng.randint(1, 5)) for _ in range(6)]
        counts = rollouts.counts
        seen = [group.number for batch in batches for group in batch]
        assert len(seen) == len(set(seen)) == counts.returned
        assert counts.begun == counts.returned + counts.cancelled + counts.stale
        assert len(source.made) == size * counts.begun
        assert policy.most <= options["concurrency"]
        # A machine that was given up before it began has no environment to close twice.
        assert all(machine.env.closed == 1 for machine in source.made)
        assert all(len(g.episodes) == size for batch in batches for g in batch)
        if options["oversample"] == 1.0:
            assert seen == list(range(counts.begun)) and counts.cancelled == 0

    for seed in range(50):
        asyncio.run(run(Random(seed)))


def test_an_environment_that_fails_is_an_episode_of_its_group(source, monkeypatch):
    step = Two._step

    def fail_in_the_first(env, action):
        if env in [machine.env for machine in source.made[:2]]:
            raise OSError("on purpose")
        return step(env, action)

    monkeypatch.setattr(Two, "_step", fail_in_the_first)

    async def run():
        async with Rollouts(source(2), Paced({})) as rollouts:
            return await rollouts.batch(2)

    ends = [[e.stop_reason for e in group.episodes] for group in asyncio.run(run())]
    assert ends == [[StopReason.ENV_ERROR] * 2, [StopReason.TERMINATED] * 2]


def test_a_batch_in_which_every_episode_failed_is_an_error_with_its_reason(source, monkeypatch):
    def fail(env, action):
        raise OSError("on purpose")

    async def run():
        async with Rollouts(source(2), Paced({})) as rollouts:
            await rollouts.batch(1)
            monkeypatch.setattr(Two, "_step", fail)
            await rollouts.batch(2)

    reason = r"100% of the batch's 4 episodes failed.*OSError: on purpose \(test_rollouts.py:\d+\)"
    with pytest.raises(GemError, match=reason):
        asyncio.run(run())


@pytest.mark.parametrize("broken", [0, 2])
def test_an_error_of_the_engine_ends_all_groups_and_is_raised(source, broken):
    async def run():
        policy = Paced({1: 10**6}, broken=[broken])
        rollouts = Rollouts(source(1), policy, oversample=3, unfinished="carry")
        with pytest.raises(OSError, match=f"engine failed at {broken}"):
            for _ in range(9):
                await rollouts.batch(1)

    asyncio.run(run())
    assert all(machine.env.closed == 1 for machine in source.made)


def test_an_error_in_a_group_that_nobody_waits_for_is_raised_too(source):
    async def run():
        policy = Paced({0: 1, 1: 20}, broken=[1])
        async with Rollouts(source(1), policy, oversample=2) as rollouts:
            async for group in rollouts.stream(1):
                assert group.number == 0
                await asyncio.sleep(0.05)  # the other one fails meanwhile

    with pytest.raises(OSError, match="engine failed at 1"):
        asyncio.run(run())


def test_cancelling_the_loop_closes_all_environments(source):
    async def run():
        rollouts = Rollouts(source(2), Paced(dict.fromkeys(range(9), 10**6)), concurrency=3)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(rollouts.batch(3), 0.05)

    asyncio.run(run())
    assert len(source.made) == 6 and all(machine.env.closed == 1 for machine in source.made)


def test_a_source_that_ends_says_so(source):
    async def run():
        async with Rollouts(source(1, count=3), Paced({})) as rollouts:
            assert len(await rollouts.batch(2)) == 2
            with pytest.raises(GemError, match="1 groups are under way, the batch needs 2 more"):
                await rollouts.batch(2)

    asyncio.run(run())


@pytest.mark.parametrize(
    "wrong",
    [
        {"oversample": 0.5},
        {"oversample": math.inf},
        {"oversample": math.nan},
        {"unfinished": "drop"},
        {"max_batches": 0},
        {"concurrency": 0},
    ],
)
def test_impossible_values_are_refused(source, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Rollouts(source(), Paced({}), **wrong)
