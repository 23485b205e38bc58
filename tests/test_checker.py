"""`check_env` detects each kind of fault by name; every built-in environment passes."""

from __future__ import annotations

import random
import time
from random import Random
from typing import Any

import pytest

import gem_core
from gem_core.env.checker import CHECKS, EnvCheckError, check_env
from gem_core.env.interface import Env
from gem_core.envs import specs
from gem_core.errors import UnknownNameError

FEW = 6
"""Steps of environments that sleep."""
GAMES = [spec.id for spec in specs() if spec.id.startswith("game:")]


@pytest.mark.parametrize("env_id", GAMES)
def test_every_game_passes(env_id: str) -> None:
    check_env(env_id)


@pytest.mark.parametrize("answer_format", ["tag", "plain"])
@pytest.mark.parametrize("env_id", [i for i in GAMES if i.endswith("-easy")])
def test_every_game_passes_in_other_answer_formats(env_id: str, answer_format: str) -> None:
    check_env(env_id, skip=("process",), answer_format=answer_format)


@pytest.mark.parametrize("env_id", [i for i in GAMES if i.endswith("-easy")])
def test_every_game_passes_where_format_errors_do_not_end_it(env_id: str) -> None:
    check_env(env_id, skip=("process",), format_error_ends=False)


class Good(Env):
    """Three steps; the observation is a number from the generator."""

    _state_fields = ("count",)
    count: int

    def _reset(self, options: Any) -> Any:
        self.count = 0
        return f"{self.rng.random()}", {}

    def _step(self, action: str) -> Any:
        self.count += 1
        over = self.count == 3
        info = {"success": False} if over else {}
        return f"{self.rng.random()}", 0.0, over, False, info

    def random_action(self, rng: Random) -> str:
        return str(rng.random())


class ReadsGlobal(Good):
    def _step(self, action: str) -> Any:
        return (str(random.random()), *super()._step(action)[1:])


class SeedsGlobal(Good):
    def _reset(self, options: Any) -> Any:
        random.seed(self.rng.random())
        return super()._reset(options)


class SharesState(Good):
    shared = 0

    def _step(self, action: str) -> Any:
        SharesState.shared = (SharesState.shared + 1) % 3
        return (f"{SharesState.shared}", *super()._step(action)[1:])

    def _reset(self, options: Any) -> Any:
        SharesState.shared = 0
        return super()._reset(options)


class HashOrder(Good):
    def _step(self, action: str) -> Any:
        return (f"{hash('abc')}", *super()._step(action)[1:])


class ForgetsState(Good):
    _state_fields = ()


class Unpicklable(Good):
    def __init__(self) -> None:
        self.function = lambda: None


class Raises(Good):
    def _step(self, action: str) -> Any:
        action.encode()
        return super()._step(action)


class Echoes(Good):
    def _step(self, action: str) -> Any:
        return (action, *super()._step(action)[1:])


class StepsOn(Good):
    def step(self, action: str) -> Any:
        return self._step(action)


class NoSuccess(Good):
    def _step(self, action: str) -> Any:
        return (*super()._step(action)[:4], {})


class ChangesInfo(Good):
    def _reset(self, options: Any) -> Any:
        self.info: dict[str, Any] = {"n": 0}
        return super()._reset(options)[0], self.info

    def _step(self, action: str) -> Any:
        self.info["n"] += 1
        self.info["success"] = False
        return (*super()._step(action)[:4], self.info)


class OwnRandomAction(Good):
    def random_action(self, rng: Random) -> str:
        return str(self.rng.random())


class BadFormat(Good):
    def _step(self, action: str) -> Any:
        info = {"error": "invalid_format", "success": False}
        return (*super()._step(action)[:4], info)


class IntObservation(Good):
    def _reset(self, options: Any) -> Any:
        return 1, {}


class RaisesLate(Good):
    """Its episodes have 60 turns, more than a trace; the 55th raises."""

    def _step(self, action: str) -> Any:
        self.count += 1
        if self.count == 55:
            raise IndexError("pop from empty list")
        over = self.count == 60
        return "", 0.0, over, False, {"success": False} if over else {}


class NeverEnds(Good):
    def _step(self, action: str) -> Any:
        return "on and on", 0.0, False, False, {}


class IgnoresSign(Good):
    def _seed(self, seed: int) -> None:
        super()._seed(abs(seed))


class IgnoresHighBits(Good):
    def _seed(self, seed: int) -> None:
        super()._seed(seed % 2**32)


class OneSeed(Good):
    def _seed(self, seed: int) -> None:
        super()._seed(0)


class OwnGenerator(Good):
    """The task comes from a generator of its own, which ignores the sign of the seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        _, info = super().reset(seed=seed, options=options)
        return f"{random.Random(abs(seed or 0)).random()}", info


class Blocks(Good):
    def _step(self, action: str) -> Any:
        time.sleep(0.5)
        return super()._step(action)


class BlocksInReset(Good):
    def _reset(self, options: Any) -> Any:
        time.sleep(0.5)
        return super()._reset(options)


class SaysSo(Blocks):
    slow = True


class RaisesOnMalformedMidGame(Good):
    """Its episodes have six turns; after the first, an answer is assumed."""

    def _step(self, action: str) -> Any:
        self.count += 1
        if self.count > 1:
            action.split()[0]
        over = self.count == 6
        return "", 0.0, over, False, {"success": False} if over else {}


class NoneOnMalformed(Good):
    def _step(self, action: str) -> Any:
        result = super()._step(action)
        return result if action else (None, *result[1:])


class BreaksAfterMalformed(Good):
    """The next episode is broken, which `reset` notices."""

    broken = False

    def _reset(self, options: Any) -> Any:
        if self.broken:
            raise RuntimeError("the table is gone")
        return super()._reset(options)

    def _step(self, action: str) -> Any:
        self.broken = not action
        return super()._step(action)


def test_a_sound_environment_passes() -> None:
    check_env(Good)


@pytest.mark.parametrize(
    ("cls", "check"),
    [
        (ReadsGlobal, "determinism"),
        (SeedsGlobal, "global_rng"),
        (SharesState, "interleaved"),
        (HashOrder, "process"),
        (ForgetsState, "state"),
        (Unpicklable, "pickle"),
        (Raises, "malformed"),
        (Echoes, "malformed"),
        (StepsOn, "episode_state"),
        (NoSuccess, "success"),
        (ChangesInfo, "infos_kept"),
        (OwnRandomAction, "random_action"),
        (BadFormat, "random_action"),
        (IntObservation, "api"),
        (RaisesLate, "mid_game"),
        (NeverEnds, "ends"),
        (IgnoresSign, "distinct_seeds"),
        (IgnoresHighBits, "distinct_seeds"),
        (OneSeed, "distinct_seeds"),
        (OwnGenerator, "distinct_seeds"),
        (Blocks, "slow"),
        (BlocksInReset, "slow"),
        (RaisesOnMalformedMidGame, "malformed"),
        (NoneOnMalformed, "malformed"),
        (BreaksAfterMalformed, "malformed"),
    ],
)
def test_each_fault_is_found(cls: type[Env], check: str) -> None:
    skip = [name for name in CHECKS if name not in (check, "api")]
    with pytest.raises(EnvCheckError, match=cls.__name__ if check != "api" else "api") as caught:
        check_env(cls, skip=skip, steps=FEW if issubclass(cls, (Blocks, BlocksInReset)) else 40)
    assert caught.value.check == check


@pytest.mark.parametrize(
    ("cls", "check", "words"),
    [
        (RaisesLate, "mid_game", r"turn 55: step\(.*\) raised IndexError"),
        (NeverEnds, "ends", "not over after 1000 random actions"),
        (Blocks, "slow", "set slow = True"),
        (RaisesOnMalformedMidGame, "malformed", r"turn 4: step\(''\) raised IndexError"),
        (NoneOnMalformed, "malformed", r"step\(''\): an observation must be a str"),
    ],
)
def test_a_fault_has_its_own_name_also_when_all_checks_run(
    cls: type[Env], check: str, words: str
) -> None:
    with pytest.raises(EnvCheckError, match=words) as caught:
        check_env(cls, skip=("process",), steps=FEW if cls is Blocks else 40)
    assert caught.value.check == check


class ExitsInStep(Good):
    def _step(self, action: str) -> Any:
        raise SystemExit(0)


class ExitsInReset(Good):
    def _reset(self, options: Any) -> Any:
        raise GeneratorExit


class ExitsMadeAgain(Good):
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        if type(self).made > 1:
            raise SystemExit(0)


class ExitsOnMalformed(Good):
    def _step(self, action: str) -> Any:
        if not action:
            raise SystemExit(0)
        return super()._step(action)


class ExitsInState(Good):
    def get_state(self) -> Any:
        raise Unshown


class Unshown(BaseException):
    def __str__(self) -> str:
        raise SystemExit(0)

    __repr__ = __str__


@pytest.mark.parametrize(
    ("cls", "check", "words"),
    [
        (ExitsInStep, "api", r"raised SystemExit: 0 \(test_checker.py:\d+\)"),
        (ExitsInReset, "api", "raised GeneratorExit"),
        (ExitsMadeAgain, "slow", "raised SystemExit: 0"),
        (ExitsOnMalformed, "malformed", r"step\(''\) raised SystemExit: 0"),
        (ExitsInState, "distinct_seeds", "its message cannot be shown"),
    ],
)
def test_an_environment_that_exits_fails_its_check(cls: type[Env], check: str, words: str) -> None:
    """An exit would end the program that checks it, with the code of success."""
    with pytest.raises(EnvCheckError, match=words) as caught:
        check_env(cls, skip=("process",))
    assert caught.value.check == check


def test_a_slow_environment_that_says_so_passes() -> None:
    check_env(SaysSo, skip=[name for name in CHECKS if name != "slow"])


def test_few_tasks_are_not_colliding_seeds() -> None:
    for env_id in ("game:TowerofHanoi-v0-easy", "game:GuessTheNumber-v0-easy"):
        check_env(env_id, skip=[name for name in CHECKS if name != "distinct_seeds"])


def test_a_check_to_skip_must_exist() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'process'"):
        check_env(Good, skip=("proces",))


def test_check_env_takes_a_spec() -> None:
    check_env(gem_core.spec("game:TowerofHanoi-v0-easy"), skip=("process",))
