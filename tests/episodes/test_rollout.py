"""Playing episodes: no barrier, no lost episode, no hidden error."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from gem_core.episodes.data import Completion, StopReason
from gem_core.episodes.machine import Limits
from gem_core.episodes.rollout import (
    MicroBatcher,
    Request,
    failed_fraction,
    play,
    play_batch,
    play_many,
    require_healthy,
)
from gem_core.errors import GemError


def ragged(kit, count):
    """Machine k plays k % 4 + 1 turns and earns k."""
    return [kit.machine(*[kit.going(f"o{k}")] * (k % 4), kit.won(float(k))) for k in range(count)]


def test_all_ways_of_playing_give_the_same_episodes(kit):
    async def batched():
        async with MicroBatcher(kit.Echo()) as policy:
            return await play_many(ragged(kit, 40), policy)

    ways = [
        play_batch(ragged(kit, 40), kit.Echo()),
        asyncio.run(play_many(ragged(kit, 40), kit.Echo())),
        asyncio.run(play_many(ragged(kit, 40), kit.Echo(), concurrency=3)),
        asyncio.run(batched()),
    ]
    for episodes in ways:
        assert [e.total_reward for e in episodes] == [float(k) for k in range(40)]
        assert [len(e.turns) for e in episodes] == [k % 4 + 1 for k in range(40)]
        for episode in episodes:
            episode.seconds = {}
    assert ways[0] == ways[1] == ways[2] == ways[3]


def test_lockstep_asks_only_for_running_episodes(kit):
    policy = kit.Echo()
    play_batch(ragged(kit, 8), policy)
    assert policy.batches == [8, 6, 4, 2]


def test_micro_batcher_gathers_and_respects_max_batch(kit):
    async def run():
        async with MicroBatcher(kit.Echo(), max_batch=16, max_wait_s=0.02) as policy:
            await play_many(ragged(kit, 64), policy)
            return policy.calls

    calls = asyncio.run(run())
    assert max(calls) <= 16
    assert sum(size * n for size, n in calls.items()) == sum(k % 4 + 1 for k in range(64))
    assert sum(calls.values()) < 40  # not one call per request


def test_hanging_environment_meets_its_deadline_and_delays_no_other(kit):
    limits = Limits(turn_deadline_s=0.3)
    machines = [kit.machine(60.0, limits=limits), *ragged(kit, 4)]
    began = time.monotonic()
    episodes = asyncio.run(play_many(machines, kit.Echo()))
    assert time.monotonic() - began < 30
    assert episodes[0].stop_reason is StopReason.DEADLINE and "0.3" in episodes[0].error
    assert [e.stop_reason for e in episodes[1:]] == [StopReason.TERMINATED] * 4
    machines[0].env.release.set()


def test_hanging_environments_in_lockstep(kit):
    limits = Limits(turn_deadline_s=0.3)
    machines = [*[kit.machine(60.0, limits=limits) for _ in range(3)], *ragged(kit, 4)]
    began = time.monotonic()
    episodes = play_batch(machines, kit.Echo())
    assert time.monotonic() - began < 30
    assert [e.stop_reason for e in episodes[:3]] == [StopReason.DEADLINE] * 3
    assert [e.total_reward for e in episodes[3:]] == [0.0, 1.0, 2.0, 3.0]
    for machine in machines[:3]:
        machine.env.release.set()


def test_slow_environments_step_outside_the_event_loop(kit):
    threads = []

    class Slow(kit.Script):
        def _step(self, action):
            threads.append(threading.current_thread())
            return super()._step(action)

    asyncio.run(play(kit.machine(env=Slow(kit.won(), slow=True)), kit.Echo()))
    assert threads and all(thread is not threading.main_thread() for thread in threads)


def test_episode_deadline_during_generation(kit):
    class Stuck:
        async def complete(self, request):
            await asyncio.sleep(60)

    machine = kit.machine(kit.won(), limits=Limits(episode_deadline_s=0.2))
    episode = asyncio.run(play(machine, Stuck()))
    assert episode.stop_reason is StopReason.DEADLINE and episode.turns == []


def test_engine_faults_are_raised_not_recorded(kit):
    class Broken:
        async def complete(self, request):
            raise ConnectionError("engine is gone")

        def complete_batch(self, requests):
            raise ConnectionError("engine is gone")

    async def batched():
        async with MicroBatcher(Broken()) as policy:
            await play_many(ragged(kit, 4), policy)

    with pytest.raises(ConnectionError):
        asyncio.run(play_many(ragged(kit, 4), Broken()))
    with pytest.raises(ConnectionError):
        asyncio.run(batched())
    with pytest.raises(ConnectionError):
        play_batch(ragged(kit, 4), Broken())


def test_engine_that_drops_a_completion_is_noticed(kit):
    class Short(kit.Echo):
        def complete_batch(self, requests):
            return super().complete_batch(requests)[:-1]

    async def batched():
        async with MicroBatcher(Short()) as policy:
            await play_many(ragged(kit, 4), policy)

    with pytest.raises(ValueError, match="shorter"):
        play_batch(ragged(kit, 4), Short())
    with pytest.raises(GemError, match="completions for"):
        asyncio.run(batched())


def test_thousands_at_once(kit):
    episodes = asyncio.run(play_many(ragged(kit, 4000), kit.Echo(), concurrency=4000))
    assert len(episodes) == 4000 and all(e.success for e in episodes)


def test_unhealthy_batches_stop_the_run(kit):
    broken = [kit.machine(RuntimeError("no disk")) for _ in range(3)]
    episodes = play_batch([*broken, *ragged(kit, 2)], kit.Echo())
    assert failed_fraction(episodes) == 0.6
    with pytest.raises(GemError, match=r"60% .* no disk"):
        require_healthy(episodes)
    require_healthy(episodes, max_failed=0.6)


def test_seconds_are_recorded(kit):
    (episode,) = play_batch([kit.machine(kit.won())], kit.Echo(delay=0.01))
    assert episode.seconds["policy"] >= 0.01 and episode.seconds["env"] > 0
    assert isinstance(episode.turns[0].action, str) and Completion([1]).logprobs is None


@pytest.mark.parametrize(("max_wait_s", "least", "most"), [(0.2, 0.2, 10.0), (60.0, 0.0, 10.0)])
def test_a_call_waits_no_longer_than_it_says(kit, max_wait_s, least, most):
    """Alone a request waits ``max_wait_s``; the last one of a full batch is not waited after."""
    alone = least > 0
    machines = [kit.machine(kit.won()) for _ in range(1 if alone else 4)]

    async def run():
        async with MicroBatcher(kit.Echo(), max_batch=4, max_wait_s=max_wait_s) as policy:

            async def later(number, machine):
                await asyncio.sleep(0.02 * number)
                return await policy.complete(Request([98], 4, machine))

            began = time.monotonic()
            await asyncio.gather(*(later(k, machine) for k, machine in enumerate(machines)))
            return time.monotonic() - began, dict(policy.calls)

    seconds, calls = asyncio.run(run())
    assert least <= seconds < most and calls == {len(machines): 1}
