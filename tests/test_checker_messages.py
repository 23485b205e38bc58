"""What `check_env` says of scripted players, of states, and of two episodes that differ."""

from __future__ import annotations

import random
from random import Random
from typing import Any, ClassVar

import pytest

import gem_core
from gem_core.env.checker import CHECKS, EnvCheckError, check_env
from gem_core.env.interface import Env
from gem_core.envs.players import Peek, Player, register_player
from gem_core.envs.players.registry import EXPERTS, WEAK


def only(*names: str) -> list[str]:
    return [name for name in CHECKS if name not in names]


class Names(Player):
    """Names a number."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        return "1"


class Crashes(Player):
    """Reads what the second observation has not."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        return obs.split(":")[1]


class Number(Env):
    """Two turns; the action 2 wins."""

    fast = True
    _state_fields = ("turn",)
    turn: int

    def _reset(self, options: Any) -> Any:
        self.turn = 0
        return "name a number: 1 or 2", {}

    def _step(self, action: str) -> Any:
        self.turn += 1
        over = self.turn == 2
        return "again", 0.0, over, False, {"success": action == "2"} if over else {}

    def random_action(self, rng: Random) -> str:
        return str(rng.randint(1, 2))


class Bad(Number):
    players: ClassVar = {"expert": Names, "weak": Crashes}


class NeverWins(Number):
    players: ClassVar = {"expert": Names}


class OfTheEnv(Number):
    """Its expert reads the environment, which has no answer."""

    players: ClassVar = {"expert": Peek}

    def peek(self) -> str:
        raise NotImplementedError("no answer")


class Forgets(Number):
    """Counts in an attribute that is not named."""

    _state_fields = ()

    def _step(self, action: str) -> Any:
        obs, *others = super()._step(action)
        return f"{obs} {self.turn}", *others


class Long(Number):
    """Two plays differ after many characters."""

    def _step(self, action: str) -> Any:
        return f"{'x' * 500}{random.random()}", *super()._step(action)[1:]


def test_a_player_that_raises_is_named_with_its_error() -> None:
    with pytest.raises(
        EnvCheckError,
        match=r"\[players\] .*the player 'weak', seed 0, turn 2, raised IndexError: .*_messages.py",
    ):
        check_env(Bad, skip=("process",))


@pytest.mark.parametrize("cls", [Number, OfTheEnv])
def test_an_environment_needs_no_expert(cls: type[Env]) -> None:
    notes: list[str] = []
    check_env(cls, skip=only("players"), noted=notes.append)
    assert notes == []


def test_an_expert_that_never_succeeds_is_a_fact() -> None:
    notes: list[str] = []
    check_env(NeverWins, skip=only("players"), noted=notes.append)
    assert notes == ["the expert succeeded in none of 3 episodes"]


def test_a_registered_player_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {family: dict(players) for family, players in WEAK.items()}
    register_player("crashes", "checker:Number", f"{__name__}:Crashes")
    gem_core.register("checker:Number-v0", f"{__name__}:Number")
    try:
        with pytest.raises(EnvCheckError, match="the player 'crashes'"):
            check_env("checker:Number-v0", skip=only("players"))
    finally:
        WEAK.clear()
        WEAK.update(here)
        assert "checker:Number" not in EXPERTS


def test_a_state_without_a_field_names_where_fields_are_listed() -> None:
    with pytest.raises(EnvCheckError, match=r"\[state\].*named in _state_fields"):
        check_env(Forgets, skip=only("api", "state"))


def test_a_difference_is_shown_from_where_it_is() -> None:
    with pytest.raises(EnvCheckError, match="determinism") as caught:
        check_env(Long, skip=only("api", "determinism"))
    one, _, other = str(caught.value).partition("first difference at ")[2].partition(" != ")
    assert "after" in one and one.partition(": ")[2] != other
    assert "0." in one and "0." in other
