"""Env and Wrapper: seeds, order of calls, state, delegation."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from random import Random
from typing import Any

import numpy
import pytest

import gem_core
from gem_core.env.interface import Env, Wrapper
from gem_core.errors import ActionTypeError, EpisodeStateError, StateError

GUESS = "game:GuessTheNumber-v0-hard"


class Draws(Env):
    """Every observation is a number from the generator."""

    _state_fields = ("count",)
    count: int

    def _reset(self, options: Any) -> Any:
        self.count = 0
        return str(self.rng.random()), {"options": options}

    def _step(self, action: str) -> Any:
        self.count += 1
        info = {"success": False} if self.count == 5 else {}
        return str(self.rng.random()), 0.0, self.count == 5, False, info

    def random_action(self, rng: Random) -> str:
        return "go"


class Limited(Wrapper):
    """Cut an episode off after so many steps."""

    _state_fields = ("steps",)
    steps: int

    def __init__(self, env: Env, limit: int) -> None:
        super().__init__(env)
        self.limit = limit
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: str) -> Any:
        if self.steps >= self.limit:
            raise EpisodeStateError("The episode is over.")
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        if self.steps >= self.limit and not terminated:
            truncated, info = True, {"success": False, **info}
        return obs, reward, terminated, truncated, info


class Counter(Wrapper):
    _state_fields = ("calls",)

    def __init__(self, env: Env):
        super().__init__(env)
        self.calls = 0

    def step(self, action: str) -> Any:
        self.calls += 1
        return self.env.step(action)


def test_same_seed_same_episode_and_no_seed_continues_the_generator() -> None:
    env = Draws()
    first, second = env.reset(seed=7)[0], env.reset()[0]
    assert first != second
    assert (env.reset(seed=7)[0], env.reset()[0]) == (first, second)


@pytest.mark.parametrize("pair", [(1, -1), (0, 2**32), (5, 2**64 + 5), (0, -1)])
def test_different_integers_are_different_seeds(pair: tuple[int, int]) -> None:
    env = Draws()
    assert env.reset(seed=pair[0])[0] != env.reset(seed=pair[1])[0]


def test_unseeded_environments_differ() -> None:
    assert Draws().reset()[0] != Draws().reset()[0]


def test_numpy_integers_are_seeds() -> None:
    env = Draws()
    assert env.reset(seed=numpy.int64(3))[0] == env.reset(seed=3)[0]


@pytest.mark.parametrize("seed", ["1", 1.0, [1], b"1"])
def test_a_seed_that_is_no_integer_is_a_clear_type_error(seed: Any) -> None:
    with pytest.raises(TypeError, match="seed must be an integer"):
        Draws().reset(seed=seed)


def test_options_reach_the_task() -> None:
    assert Draws().reset(options={"a": 1})[1] == {"options": {"a": 1}}


def test_step_before_reset_after_the_end_and_after_close() -> None:
    env = Draws()
    with pytest.raises(EpisodeStateError, match=r"before reset\(\)"):
        env.step("go")
    env.reset(seed=0)
    for _ in range(5):
        env.step("go")
    with pytest.raises(EpisodeStateError, match="is over"):
        env.step("go")
    env.reset()
    env.step("go")
    env.close()
    for call in (lambda: env.step("go"), env.reset):
        with pytest.raises(EpisodeStateError, match="closed"):
            call()


@pytest.mark.parametrize("action", [None, 3, b"go", ["go"]])
def test_an_action_is_a_str(action: Any) -> None:
    env = Draws()
    env.reset(seed=0)
    with pytest.raises(ActionTypeError, match=type(action).__name__):
        env.step(action)
    assert env.count == 0


def test_a_subclass_of_str_is_an_action() -> None:
    class Text(str):
        pass

    env = Draws()
    env.reset(seed=0)
    env.step(Text("go"))


def test_state_is_json_and_restores_generator_and_position() -> None:
    env = Draws()
    env.reset(seed=1)
    env.step("go")
    state = json.loads(json.dumps(env.get_state()))
    rest = [env.step("go") for _ in range(4)]
    other = Draws()
    other.set_state(state)
    assert [other.step("go") for _ in range(4)] == rest
    with pytest.raises(EpisodeStateError):
        other.step("go")


def test_state_of_a_fresh_environment_makes_it_fresh_again() -> None:
    env = Draws()
    state = env.get_state()
    env.reset(seed=1)
    env.set_state(state)
    with pytest.raises(EpisodeStateError, match=r"before reset\(\)"):
        env.step("go")


def test_a_state_is_not_shared_with_the_environment() -> None:
    env = gem_core.make(GUESS)
    env.reset(seed=0)
    state = env.get_state()
    before = json.dumps(state)
    env.step("\\boxed{1}")
    assert json.dumps(state) == before


def test_the_state_of_another_environment_is_refused() -> None:
    env = gem_core.make(GUESS)
    with pytest.raises(ValueError, match="belongs to 'Draws'"):
        env.set_state(Draws().get_state())


def test_wrapper_reads_the_inner_environment_each_time() -> None:
    env = Counter(Draws())
    env.reset(seed=0)
    env.step("go")
    assert (env.count, env.calls) == (1, 1)
    env.step("go")
    assert (env.count, env.calls, env.unwrapped.count) == (2, 2, 2)
    assert env.rng is env.unwrapped.rng
    with pytest.raises(AttributeError):
        env.nothing  # noqa: B018


def test_wrapper_state_and_pickle_hold_the_whole_stack() -> None:
    env = Counter(Limited(Draws(), 4))
    env.reset(seed=0)
    env.step("go")
    copies = [pickle.loads(pickle.dumps(env)), Counter(Limited(Draws(), 4))]
    copies[1].set_state(json.loads(json.dumps(env.get_state())))
    rest = [env.step("go") for _ in range(3)]
    for other in copies:
        assert [other.step("go") for _ in range(3)] == rest
        assert other.calls == env.calls == 4
        assert other.env.steps == 4


def test_wrapped_environments_pass_the_checker() -> None:
    gem_core.check_env(
        lambda: Counter(Limited(gem_core.make("game:Sudoku-v0-easy"), 6)), skip=("process",)
    )


def test_global_generators_are_left_alone() -> None:
    random.seed(5)
    before = random.getstate()
    env = gem_core.make("game:Sudoku-v0-easy")
    for seed in (None, 1):
        env.reset(seed=seed)
    assert random.getstate() == before


def test_import_and_make_load_nothing_heavy() -> None:
    code = (
        "import sys, gem_core; env = gem_core.make('game:GuessTheNumber-v0-easy'); "
        "env.reset(seed=0); print(*sys.modules)"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {m.split(".")[0] for m in set(child.stdout.split()) - set(bare.stdout.split())}
    heavy = {"numpy", "torch", "transformers", "msgspec", "dataclasses", "inspect"}
    assert not loaded & heavy


def test_every_public_name_is_listed_and_unknown_ones_are_attribute_errors() -> None:
    assert set(gem_core._MODULES) < set(gem_core.__all__) <= set(dir(gem_core))
    with pytest.raises(AttributeError, match="nonsense"):
        gem_core.nonsense  # noqa: B018


def test_a_state_that_fails_halfway_leaves_the_environment_as_it_was() -> None:
    class Picky(Draws):
        limit: int
        _state_fields = (*Draws._state_fields, "limit")

        def _consistent(self) -> bool:
            return self.limit < 10

        def _restored(self) -> None:
            if self.limit == 7:
                raise ZeroDivisionError("on request")

    env = Picky()
    env.limit = 3
    env.reset(seed=1)
    state = env.get_state()
    for limit, why in ((10, "contradict"), (7, "ZeroDivisionError"), ("3", "not of the type int")):
        wrong = {**state, "fields": {**state["fields"], "limit": limit}}
        with pytest.raises(StateError, match=why):
            env.set_state(wrong)
        assert env.get_state() == state
    assert env.step("go")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("status", 3),
        ("status", True),
        ("status", "1"),
        ("rng", None),
        ("rng", [3, [0] * 624 + [624], None]),
        ("rng", [3, [1] * 624 + [10**9], None]),
        ("rng", [3, [1] * 10, None]),
        ("rng", "x"),
        ("fields", None),
        ("fields", {"unknown": 1}),
        ("more", json.loads("[" * 100 + "]" * 100)),
        ("more", float("nan")),
        ("more", 1 << 600),
        ("more", {1: 2}),
    ],
)
def test_a_damaged_state_is_refused(part: str, value: object) -> None:
    env = Draws()
    env.reset(seed=1)
    state = env.get_state()
    with pytest.raises(StateError):
        env.set_state({**state, part: value})
    assert env.get_state() == state
