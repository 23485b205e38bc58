"""A bad result of an environment is one failed episode, never the end of a run."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from gem_core.episodes.context import Context
from gem_core.episodes.data import StopReason
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.episodes.rollout import play_batch, play_many, require_healthy
from gem_core.errors import GemError

GOOD = ("obs", 0.5, False, False, {})


BAD_STEPS = {
    "None": None,
    "four parts": ("obs", 0.5, False, {}),
    "six parts": (*GOOD, 1),
    "observation None": (None, *GOOD[1:]),
    "observation bytes": (b"obs", *GOOD[1:]),
    "observation surrogate": ("a \ud800 b", *GOOD[1:]),
    "reward None": ("obs", None, False, False, {}),
    "reward NaN": ("obs", float("nan"), False, False, {}),
    "reward inf": ("obs", float("inf"), True, False, {}),
    "reward bool": ("obs", True, False, False, {}),
    "reward str": ("obs", "0.5", False, False, {}),
    "reward numpy bool": ("obs", np.bool_(True), False, False, {}),
    "reward numpy NaN": ("obs", np.float32("nan"), False, False, {}),
    "reward too large": ("obs", 10**400, False, False, {}),
    "terminated str": ("obs", 0.5, "False", False, {}),
    "truncated None": ("obs", 0.5, False, None, {}),
    "terminated array": ("obs", 0.5, np.array([False, True]), False, {}),
    "info None": (*GOOD[:4], None),
    "info list": (*GOOD[:4], []),
    "suffix bytes": (*GOOD[:4], {"suffix": b"board"}),
    "suffix list": (*GOOD[:4], {"suffix": ["board"]}),
    "suffix surrogate": (*GOOD[:4], {"suffix": "\udfff"}),
    "success str": ("obs", 1.0, True, False, {"success": "False"}),
    "success array": ("obs", 1.0, True, False, {"success": np.array([True, False])}),
    "stop reason": ("obs", 1.0, True, False, {"stop_reason": "gave up"}),
    "stop reason array": ("obs", 1.0, False, True, {"stop_reason": np.array([1, 2])}),
}
BAD_RESETS = {
    "None": None,
    "a text alone": "go",
    "three parts": ("go", {}, 1),
    "observation None": (None, {}),
    "observation surrogate": ("\udc80", {}),
    "info None": ("go", None),
    "suffix": ("go", {"suffix": 3}),
}


class Raw:
    """An environment that is no `Env` and returns fixed results."""

    def __init__(self, reset=("go", {}), step=GOOD):
        self.results = [reset, step]
        self.closed = 0

    def reset(self, *, seed=None, options=None):
        return self.results[0]

    def step(self, action):
        return self.results[1]

    def close(self):
        self.closed += 1


def broken(kit, env, limits=None):
    context = Context(kit.template, kit.tokenizer)
    return EpisodeMachine(env, context, limits or Limits(), seed=11, env_id="their:Env")


def require_failure(episode, env):
    assert episode.stop_reason is StopReason.ENV_ERROR
    assert episode.error.startswith("their:Env, seed 11: ")
    assert env.closed == 1 and not episode.success
    assert all(turn.aborted for turn in episode.turns)
    assert not any(bit for segment in episode.segments for bit in segment.loss_mask)


@pytest.mark.parametrize("name", BAD_STEPS)
def test_a_bad_result_of_a_step_is_a_failed_episode(kit, name):
    env = Raw(step=BAD_STEPS[name])
    machine = broken(kit, env)
    machine.start()
    assert machine.feed(kit.complete("a")) is None
    require_failure(machine.episode, env)
    assert machine.episode.rewards == [0.0]


@pytest.mark.parametrize("name", BAD_RESETS)
def test_a_bad_result_of_a_reset_is_a_failed_episode(kit, name):
    env = Raw(reset=BAD_RESETS[name])
    machine = broken(kit, env)
    assert machine.start() is None
    require_failure(machine.episode, env)


@pytest.mark.parametrize("name", ["reward NaN", "info None", "observation surrogate"])
def test_the_rest_of_the_batch_plays_on(kit, name):
    ways = [
        lambda machines: play_batch(machines, kit.Echo()),
        lambda machines: asyncio.run(play_many(machines, kit.Echo())),
    ]
    for play in ways:
        machines = [kit.machine(kit.won()) for _ in range(3)]
        machines.insert(1, broken(kit, Raw(step=BAD_STEPS[name])))
        reasons = [episode.stop_reason for episode in play(machines)]
        assert reasons == [StopReason.TERMINATED, StopReason.ENV_ERROR, *reasons[2:]]
        assert reasons[2:] == [StopReason.TERMINATED] * 2


@pytest.mark.parametrize("play", ["play_many", "play_batch"])
def test_what_the_tokenizer_raises_is_no_error_of_the_environment(kit, play):
    class Choosy(kit.Bytes):
        def encode(self, text):
            if "unsayable" in text:
                raise RuntimeError("no such text")
            return super().encode(text)

    for steps in (Raw(reset=("unsayable", {})), Raw(step=("unsayable", *GOOD[1:]))):
        machine = EpisodeMachine(steps, Context(kit.template, Choosy()))
        with pytest.raises(RuntimeError, match="no such text"):
            if play == "play_many":
                asyncio.run(play_many([machine], kit.Echo()))
            else:
                play_batch([machine], kit.Echo())
        assert machine.episode.stop_reason is StopReason.ABORTED and steps.closed == 1


@pytest.mark.parametrize(
    ("reward", "terminated"),
    [(1, 0), (np.float32(1.0), np.bool_(False)), (np.int64(1), False), (1.0, 0)],
)
def test_numbers_and_flags_of_numpy_are_fine(kit, reward, terminated):
    machine = broken(kit, Raw(step=("obs", reward, terminated, False, {"success": np.bool_(0)})))
    machine.start()
    assert machine.feed(kit.complete("a")) is not None
    turn = machine._episode.turns[0]
    assert type(turn.reward) is float and turn.reward == 1.0
    assert turn.terminated is False and turn.truncated is False


def test_an_error_in_info_of_any_type_is_kept(kit):
    machine = broken(kit, Raw(step=("obs", 1.0, True, False, {"error": np.array([1, 2])})))
    machine.start()
    assert machine.feed(kit.complete("a")) is None
    assert machine.episode.stop_reason is StopReason.TERMINATED


def test_the_most_frequent_reason_is_counted_over_all_seeds(kit):
    machines = [
        EpisodeMachine(Raw(step=(None, *GOOD[1:])), Context(kit.template, kit.tokenizer), seed=k)
        for k in range(3)
    ]
    with pytest.raises(GemError, match=r"\(3x\): Raw: EnvResultError: the observation must be"):
        require_healthy(play_batch(machines, kit.Echo()))


def test_a_state_of_an_episode_that_was_cut_is_computed_once(kit):
    for history in ("append", "concat", "last"):
        limits = Limits(max_turns=2)
        steps = [kit.going(f"o{k}") for k in range(9)]
        machine = kit.machine(*steps, history=history, limits=limits)
        machine.start()
        for _ in range(2):
            machine.feed(kit.complete("a"))
        messages = len(machine.messages)
        first = machine.bootstrap_state()
        after = len(machine.messages)
        assert first == machine.bootstrap_state() == machine.bootstrap_state()
        assert len(machine.messages) == after >= messages
