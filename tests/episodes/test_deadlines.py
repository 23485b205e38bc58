"""Environments that hang: each call ends, each thread is replaced, each environment is closed."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from gem_core.env.blocking import never_blocks
from gem_core.env.interface import Env, Wrapper
from gem_core.env.registration import make
from gem_core.episodes import env_calls
from gem_core.episodes import env_threads as pool_module
from gem_core.episodes.data import StopReason
from gem_core.episodes.env_threads import EnvThreads, env_threads
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.episodes.rollout import play, play_batch, play_many
from gem_core.errors import GemError

QUICKLY = 20.0
"""Seconds within which a test that waits for a hung call would not have ended."""


@pytest.fixture(params=["play_many", "play_batch"])
def play_all(request, kit):
    """Both ways of playing many machines with a policy, by default one that answers ``"a"``."""
    if request.param == "play_batch":
        return lambda machines, policy=None: play_batch(machines, policy or kit.Echo())
    return lambda machines, policy=None: asyncio.run(play_many(machines, policy or kit.Echo()))


@pytest.fixture
def pool(monkeypatch):
    """A pool of four threads instead of the process's own."""
    small = EnvThreads(4)
    monkeypatch.setattr(pool_module, "_pool", small)
    return small


def release(*machines):
    for machine in machines:
        machine.env.release.set()


@pytest.mark.parametrize("limits", [{"turn_deadline_s": 0.3}, {"episode_deadline_s": 0.3}])
def test_a_deadline_holds_for_environments_that_do_not_say_that_they_are_slow(
    kit, play_all, limits
):
    machine = kit.machine(9.0, limits=Limits(**limits))
    began = time.monotonic()
    (episode,) = play_all([machine])
    assert time.monotonic() - began < QUICKLY
    assert episode.stop_reason is StopReason.DEADLINE
    assert episode.error == "Script, seed 3: the environment did not answer within 0.3 s"
    release(machine)


@pytest.mark.parametrize("limits", [{"turn_deadline_s": 9}, {"episode_deadline_s": 9}])
def test_a_deadline_that_is_set_holds_for_the_environments_of_gem_core_too(
    monkeypatch, kit, limits
):
    machine = kit.machine(env=make("game:GuessTheNumber-v0-easy"), limits=Limits(**limits))
    names = []
    feed = machine.feed

    def watched(completion):
        names.append(threading.current_thread().name)
        return feed(completion)

    monkeypatch.setattr(machine, "feed", watched)
    asyncio.run(play(machine, kit.Echo()))
    assert set(names) == {"gem-env"}


def test_without_any_limit_a_hung_environment_of_others_ends_after_the_default(
    kit, play_all, monkeypatch
):
    assert env_calls.DEFAULT_DEADLINE_S == 60.0
    monkeypatch.setattr(env_calls, "DEFAULT_DEADLINE_S", 0.3)
    machines = [kit.machine(60.0), kit.machine(kit.won())]
    began = time.monotonic()
    hung, other = play_all(machines)
    assert time.monotonic() - began < QUICKLY
    assert hung.stop_reason is StopReason.DEADLINE
    assert other.stop_reason is StopReason.TERMINATED
    release(machines[0])


def test_an_episode_that_hangs_in_reset_or_in_close_ends_too(kit, play_all):
    gate = threading.Event()

    class HangsInReset(kit.Script):
        def _reset(self, options):
            gate.wait(60)
            return super()._reset(options)

    class HangsInClose(kit.Script):
        def close(self):
            gate.wait(60)
            self.closed += 1

    limits = Limits(turn_deadline_s=0.3)
    envs = [HangsInReset(kit.won()), HangsInClose(kit.won())]
    began = time.monotonic()
    in_reset, in_close = play_all([kit.machine(env=env, limits=limits) for env in envs])
    assert time.monotonic() - began < QUICKLY
    assert in_reset.stop_reason is StopReason.DEADLINE and in_reset.turns == []
    assert in_close.stop_reason is StopReason.TERMINATED and in_close.total_reward == 1.0
    gate.set()


def test_which_environments_are_called_directly(kit):
    class Declared(kit.Script):
        fast = True

    class Inherits(Declared):
        pass

    class TheirWrapper(Wrapper):
        pass

    game = make("game:GuessTheNumber-v0-easy")
    assert never_blocks(game) and never_blocks(Wrapper(game))
    assert never_blocks(Declared()) and never_blocks(Wrapper(Inherits()))
    assert not never_blocks(kit.Script()) and not never_blocks(Wrapper(kit.Script()))
    assert not never_blocks(TheirWrapper(game))
    assert not never_blocks(Declared(slow=True))
    assert not never_blocks(make("math:GSM8K", dataset="sample"))
    assert not never_blocks(object())
    assert Env.fast is False


def test_an_opponent_of_others_makes_a_game_one_that_may_block():
    game = "multi:TicTacToe-v0-easy"
    assert never_blocks(make(game))
    theirs = "gem_core.envs.multi_agent.base:random_opponent"
    assert not never_blocks(make(game, opponent=theirs))


# -- the pool ---------------------------------------------------------------------------------


def test_no_more_threads_than_the_pool_has(kit, pool, play_all):
    class Sleeps(kit.Script):
        def _step(self, action):
            threads.append(sum(t.name == "gem-env" for t in threading.enumerate()) - before)
            time.sleep(0.01)
            return super()._step(action)

    before = sum(t.name == "gem-env" for t in threading.enumerate())
    threads: list[int] = []
    episodes = play_all([kit.machine(env=Sleeps(kit.won())) for _ in range(40)])
    assert all(episode.success for episode in episodes)
    assert 1 < max(threads) <= 4


def test_one_episode_after_the_other_needs_one_thread(kit, pool):
    for _ in range(20):
        play_batch([kit.machine(kit.going(), kit.won())], kit.Echo())
    assert pool._serving == 1


def test_waiting_for_a_thread_does_not_count_as_taking_long(kit, pool, play_all):
    """120 calls of 0.05 s by four threads: the last begins long after the limit of one call."""
    limits = Limits(turn_deadline_s=1.0)

    class Sleeps(kit.Script):
        def _step(self, action):
            time.sleep(0.05)
            return super()._step(action)

    machines = [kit.machine(env=Sleeps(kit.won()), limits=limits) for _ in range(120)]
    assert [e.stop_reason for e in play_all(machines)] == [StopReason.TERMINATED] * 120


def test_hung_threads_are_counted_and_replaced(kit, pool, play_all):
    """Three times as many calls hang as the pool has threads; the others are played as well."""
    limits = Limits(turn_deadline_s=1.0)
    hung = [kit.machine(60.0, limits=limits) for _ in range(12)]
    fine = [kit.machine(kit.going(), kit.won(), limits=limits) for _ in range(20)]
    began = time.monotonic()
    episodes = play_all([*hung, *fine])
    assert time.monotonic() - began < QUICKLY
    assert [e.stop_reason for e in episodes[:12]] == [StopReason.DEADLINE] * 12
    assert [e.stop_reason for e in episodes[12:]] == [StopReason.TERMINATED] * 20
    assert pool.hung == 12
    release(*hung)
    wait_until(lambda: pool.hung == 0)
    wait_until(lambda: all(machine.env.closed == 1 for machine in hung))
    assert all(e.stop_reason is StopReason.DEADLINE and not e.success for e in episodes[:12])


def test_too_many_hung_calls_stop_the_run(kit, pool, monkeypatch):
    monkeypatch.setattr(pool_module, "MAX_HUNG_THREADS", 3)
    limits = Limits(turn_deadline_s=0.1)
    machines = [kit.machine(60.0, limits=limits) for _ in range(3)]
    play_batch(machines, kit.Echo())
    with pytest.raises(GemError, match="3 calls of environments hang"):
        play_batch([kit.machine(kit.won())], kit.Echo())
    release(*machines)


def test_a_call_nobody_waits_for_is_given_up_by_the_next_one(pool):
    gate = threading.Event()
    calls = [pool.submit(lambda: gate.wait(60), 0.05) for _ in range(4)]
    wait_until(lambda: all(call.left() <= 0 for call in calls))
    assert pool.submit(lambda: "alive", 5.0).future.result(5) == "alive"
    assert pool.hung == 4
    gate.set()


def test_a_limit_that_passes_while_it_is_looked_at_is_an_ended_episode(kit, pool, monkeypatch):
    machine = kit.machine(9.0, limits=Limits(turn_deadline_s=0.3))
    call = pool.submit(machine.env.release.wait, 0.3)
    left = iter([1e-9, *[-1e-9] * 9])
    monkeypatch.setattr(pool_module.ThreadedCall, "left", lambda call: next(left))
    looks = 0
    while not env_calls._give_up_late(machine, call, None):
        looks += 1
    assert looks == 1
    release(machine)
    assert machine.episode.stop_reason is StopReason.DEADLINE


def test_a_call_that_is_given_up_before_it_starts_never_runs(pool):
    gate = threading.Event()
    played = []
    for _ in range(4):
        pool.submit(lambda: gate.wait(60), 60)
    waiting = pool.submit(lambda: played.append(1), 60)
    pool.abandon(waiting)
    after = pool.submit(lambda: "next", 60)
    gate.set()
    assert after.future.result(5) == "next" and played == [] and pool.hung == 0


def test_a_forked_process_has_a_pool_of_its_own():
    assert env_threads().submit(lambda: 1, 5).future.result(5) == 1
    child = os.fork()
    if child == 0:
        works = False
        try:
            works = env_threads().submit(lambda: 2, 5).future.result(5) == 2
        finally:
            os._exit(0 if works else 1)
    assert os.waitpid(child, 0)[1] == 0


def wait_until(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen within five seconds")


# -- every environment is closed --------------------------------------------------------------


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("concurrency", [16, 1024])
def test_cancelling_closes_all_environments(kit, concurrency, fast):
    class Stuck:
        async def complete(self, request):
            await asyncio.sleep(60)

    async def run():
        task = asyncio.ensure_future(play_many(machines, Stuck(), concurrency=concurrency))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    envs = [type("Mine", (kit.Script,), {"fast": fast})(kit.won()) for _ in range(300)]
    machines = [kit.machine(env=env) for env in envs]
    asyncio.run(run())
    assert [env.closed for env in envs] == [1] * 300
    assert {machine.episode.stop_reason for machine in machines} == {StopReason.ABORTED}


@pytest.mark.parametrize("concurrency", [None, 4, 1024])
def test_an_error_of_the_engine_closes_all_environments(kit, concurrency):
    """With no ``concurrency`` the machines are played in lockstep."""

    class Breaks(kit.Echo):
        async def complete(self, request):
            return self.complete_batch([request])[0]

        def complete_batch(self, requests):
            if self.batches:
                raise ConnectionError("engine is gone")
            return super().complete_batch(requests)

    machines = [kit.machine(kit.going(), kit.won()) for _ in range(30)]
    with pytest.raises(ConnectionError):
        if concurrency is None:
            play_batch(machines, Breaks())
        else:
            asyncio.run(play_many(machines, Breaks(), concurrency=concurrency))
    assert [machine.env.closed for machine in machines] == [1] * 30
    assert all(machine.done for machine in machines)


@pytest.mark.parametrize("error", [asyncio.CancelledError, ConnectionError])
def test_an_episode_that_is_given_up_during_generation_is_closed(kit, error):
    class Gone:
        async def complete(self, request):
            raise error("gone")

    machine = kit.machine(kit.won())
    with pytest.raises(error):
        asyncio.run(play(machine, Gone()))
    assert machine.env.closed == 1 and machine.episode.stop_reason is StopReason.ABORTED
    assert "gone" in machine.episode.error


def test_cancelling_one_episode_while_its_environment_works(kit, pool):
    """The call goes on in its thread, which closes the environment when it returns."""
    machine = kit.machine(60.0)

    async def run():
        task = asyncio.ensure_future(play(machine, kit.Echo()))
        while not machine.env.actions:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert machine.done and machine.env.closed == 0
    release(machine)
    wait_until(lambda: machine.env.closed == 1)
    assert machine.episode.stop_reason is StopReason.ABORTED


def test_an_episode_past_its_deadline_during_generation_is_closed(kit):
    class Stuck:
        async def complete(self, request):
            await asyncio.sleep(60)

    machine = kit.machine(kit.won(), limits=Limits(episode_deadline_s=0.2))
    episode = asyncio.run(play(machine, Stuck()))
    assert episode.stop_reason is StopReason.DEADLINE and machine.env.closed == 1


def test_a_machine_that_was_aborted_before_it_began_stays_ended(kit):
    machine = kit.machine(kit.won())
    machine.abort()
    assert machine.start() is None and machine.env.closed == 1
    assert isinstance(machine, EpisodeMachine) and machine.episode.turns == []
