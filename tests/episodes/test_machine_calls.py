"""Calls whose environment lives elsewhere: begun, answered or given up, and closed once."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext

import pytest

from gem_core.env.remote.env import RemoteCallsEnv
from gem_core.env.remote.errors import EnvDeadlineError, WorkerPoolError
from gem_core.env.remote.outcome import Outcome
from gem_core.episodes.compact import Compact
from gem_core.episodes.data import StopReason
from gem_core.episodes.limits import Limits
from gem_core.episodes.machine_calls import CloseCall, FeedCall, StartCall
from gem_core.episodes.rollout import play, play_batch, play_many
from gem_core.errors import EpisodeStateError


class Elsewhere(RemoteCallsEnv):
    """Has an environment answer at once, or, for the methods ``held``, when the test says so."""

    together = nullcontext

    def __init__(self, env, held=()):
        super().__init__(deadline_s=9.0)
        self.env = env
        self.held = held
        self.calls = []

    @property
    def pool(self):
        return self

    def submit(self, method, *arguments, **named):
        outcome = Outcome()
        self.calls.append((method, outcome))
        try:
            result = getattr(self.env, method)(*arguments, **named)
        except Exception as error:
            outcome.set_exception(error)
            return outcome
        if method not in self.held:
            outcome.set_result(result)
        return outcome

    def receive(self, outcome):
        return outcome.result()

    @property
    def methods(self):
        return [method for method, _ in self.calls]


@pytest.fixture
def elsewhere(kit):
    """``elsewhere(*steps, held=())``: a machine whose environment lives elsewhere."""

    def make(*steps, held=(), **options):
        return kit.machine(env=Elsewhere(kit.Script(*steps), held), **options)

    return make


@pytest.fixture(params=["play", "play_many", "play_batch"])
def play_one(request):
    """Every loop that plays a machine."""
    return {
        "play": lambda machine, policy: asyncio.run(play(machine, policy)),
        "play_many": lambda machine, policy: asyncio.run(play_many([machine], policy))[0],
        "play_batch": lambda machine, policy: play_batch([machine], policy)[0],
    }[request.param]


def make_call(call):
    return call.receive(call.submit())


def test_the_halves_play_the_same_episode_as_the_whole(kit, elsewhere):
    steps = [kit.going("obs", 0.25, suffix="b1"), kit.won()]
    here, there = kit.machine(*steps), elsewhere(*steps)
    assert make_call(StartCall(there)) == here.start()
    for action in ("ab", "c"):
        completion = kit.complete(action)
        assert make_call(FeedCall(there, completion)) == here.feed(completion)
    assert there.needs_close and there.env.methods == ["reset", "step", "step"]
    assert CloseCall(there).receive(CloseCall(there).submit()) is None
    assert there.env.env.closed == 1 and not there.needs_close
    for machine in (here, there):
        machine.episode.seconds.clear()
        machine.episode.env_id = "same"
    assert there.episode == here.episode


def test_the_environment_is_closed_once_after_every_end(kit, elsewhere, play_one):
    for step, reason in (
        (kit.won(), StopReason.TERMINATED),
        (ValueError("broken"), StopReason.ENV_ERROR),
        (EnvDeadlineError(2), StopReason.DEADLINE),
        (kit.going(), StopReason.TRUNCATED_TURNS),
    ):
        machine = elsewhere(step, limits=Limits(max_turns=1))
        assert play_one(machine, kit.Echo()).stop_reason is reason
        assert machine.env.methods == ["reset", "step", "close"]
        assert machine.env.env.closed == 1


def test_a_summary_calls_no_environment(kit, elsewhere, play_one):
    asks = {"history": "compact", "compact": Compact(budget=12, prompt="sum", max_tokens=4)}
    steps = [kit.going("obs", 0.25), kit.won()]
    there = play_one(elsewhere(*steps, **asks), kit.Echo("x", "S", "y"))
    here = play_one(kit.machine(*steps, **asks), kit.Echo("x", "S", "y"))
    assert [turn.action for turn in there.turns] == ["x", "S", "y"]
    assert there.turns == here.turns and there.segments == here.segments


def test_a_broken_pool_stops_the_run_and_closes_the_environment(kit, elsewhere, play_one):
    machine = elsewhere(WorkerPoolError("all workers are gone"))
    with pytest.raises(WorkerPoolError):
        play_one(machine, kit.Echo())
    assert machine.episode.stop_reason is StopReason.ABORTED
    assert machine.env.methods == ["reset", "step", "close"]


def test_an_answer_after_an_abort_is_dropped(kit, elsewhere):
    machine = elsewhere(("late", 9.0, True, False, {"success": True}), held=("step",))
    make_call(StartCall(machine))
    call = FeedCall(machine, kit.complete("a"))
    outcome = call.submit()
    assert not machine.needs_close
    machine.abort(StopReason.DEADLINE, "too slow", close=False)
    assert machine.needs_close  # no thread is inside it
    outcome.set_result(("late", 9.0, True, False, {"success": True}))
    assert call.receive(outcome) is None
    episode = machine.episode
    assert episode.stop_reason is StopReason.DEADLINE and episode.error == "too slow"
    assert episode.rewards == [0.0] and not episode.success and episode.turns[0].aborted
    assert episode.final_observation == "go"
    assert CloseCall(machine).submit() is not None and machine.env.env.closed == 1


def test_only_one_caller_closes(kit, elsewhere):
    machine = elsewhere(kit.won())
    make_call(StartCall(machine))
    assert CloseCall(machine).submit() is None  # it is not over
    machine.abort(close=False)
    assert CloseCall(machine).submit() is not None
    assert CloseCall(machine).submit() is None
    machine.close()
    assert machine.env.methods == ["reset", "close"]


def test_an_error_of_the_closing_is_recorded(kit, elsewhere, play_one):
    machine = elsewhere(kit.won())

    def close():
        raise OSError("no disk")

    machine.env.env.close = close
    episode = play_one(machine, kit.Echo())
    assert episode.stop_reason is StopReason.TERMINATED
    assert episode.error.startswith("close: OSError: no disk (test_machine_calls.py:")


def test_the_time_until_an_answer_is_time_in_the_environment(kit, elsewhere):
    machine = elsewhere(kit.won(), held=("step",))
    make_call(StartCall(machine))
    before = machine._episode.seconds["env"]
    call = FeedCall(machine, kit.complete("a"))
    outcome = call.submit()
    submitted = time.perf_counter()
    while time.perf_counter() - submitted < 0.01:
        pass
    outcome.set_result(kit.won())
    call.count_seconds()
    call.receive(outcome)
    spent = machine.episode.seconds["env"] - before
    call.count_seconds()  # counts each call once
    assert spent >= 0.01 and machine.episode.seconds["env"] - before == spent


def test_a_cancelled_episode_is_closed_and_its_time_counted(kit, elsewhere):
    machine = elsewhere(kit.won(), held=("step",))

    async def cancel():
        task = asyncio.ensure_future(play(machine, kit.Echo()))
        while "step" not in machine.env.methods:
            await asyncio.sleep(0)
        before = machine._episode.seconds["env"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return before

    before = asyncio.run(cancel())
    assert machine.episode.stop_reason is StopReason.ABORTED
    assert machine.episode.seconds["env"] > before
    assert machine.env.methods == ["reset", "step", "close"]


def test_an_aborted_episode_never_reaches_its_environment(kit, elsewhere):
    machine = elsewhere(kit.won())
    machine.abort(close=False)
    assert StartCall(machine).submit() is None
    with pytest.raises(EpisodeStateError, match=r"start\(\) was called before"):
        StartCall(machine).submit()
    assert machine.env.methods == []
