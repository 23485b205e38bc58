"""Episodes of one event loop work in turns, so that they do not hold it up."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gem_core.episodes import pacing
from gem_core.episodes.pacing import pace
from gem_core.episodes.rollout import play_many

WORK_S = 0.002


class Clock:
    """In place of `time`: only the work of a test moves it, whatever else the machine does."""

    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(pacing, "time", made)
    return made


async def most_worked(clock, begin):
    """Return the most seconds of work in one iteration of the event loop while ``begin()`` runs."""
    stretches = []

    async def watch():
        while True:
            last = clock.now
            await asyncio.sleep(0)
            stretches.append(clock.now - last)

    watcher = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    await begin()
    for _ in range(2):  # the watcher notes the last iteration, too
        await asyncio.sleep(0)
    watcher.cancel()
    assert sum(stretches) == pytest.approx(100 * WORK_S)
    return max(stretches)


def test_many_coroutines_at_once_leave_the_loop_time_for_others(clock):
    order = []

    async def one(number):
        await pace().turn()
        order.append(number)
        clock.now += WORK_S

    async def all_of_them():
        return await most_worked(clock, lambda: asyncio.gather(*(one(k) for k in range(100))))

    assert asyncio.run(all_of_them()) < 10 * WORK_S
    assert order == list(range(100))


def test_without_turns_they_hold_it(clock, monkeypatch):
    async def at_once(self):
        pass

    monkeypatch.setattr(pacing.Pace, "turn", at_once)

    async def one():
        await pace().turn()
        clock.now += WORK_S

    async def all_of_them():
        return await most_worked(clock, lambda: asyncio.gather(*(one() for _ in range(100))))

    assert asyncio.run(all_of_them()) == pytest.approx(100 * WORK_S)


def test_waiters_that_threads_release_are_woken_in_their_turn():
    async def wait_for(threads, each):
        turns = pace()
        waiters = [turns.loop.create_future() for _ in range(threads * each)]

        def release(part):
            for waiter in waiters[part * each : (part + 1) * each]:
                turns.release(waiter)

        started = [threading.Thread(target=release, args=(part,)) for part in range(threads)]
        for thread in started:
            thread.start()
        waiters[3].cancel()
        done, _ = await asyncio.wait(waiters, timeout=20)
        for thread in started:
            thread.join()
        assert len(done) == threads * each and not turns.busy
        return sum(waiter.cancelled() for waiter in waiters)

    assert asyncio.run(wait_for(4, 500)) == 1


def test_a_loop_that_is_closed_is_no_error_for_a_thread():
    async def get():
        return pace(), asyncio.get_running_loop().create_future()

    turns, waiter = asyncio.run(get())
    turns.release(waiter)
    assert not waiter.done()


def test_each_loop_has_a_queue_of_its_own():
    async def get():
        return pace()

    async def twice():
        return pace() is pace()

    assert asyncio.run(twice())
    assert asyncio.run(get()) is not asyncio.run(get())


def test_episodes_that_begin_together_take_turns(kit, clock):
    class Busy(kit.Script):
        fast = True

        def _reset(self, options):
            clock.now += WORK_S
            return super()._reset(options)

    machines = [kit.machine(env=Busy(kit.won())) for _ in range(100)]

    async def all_of_them():
        return await most_worked(clock, lambda: play_many(machines, kit.Echo()))

    assert asyncio.run(all_of_them()) < 10 * WORK_S
    assert all(machine.episode.success for machine in machines)
