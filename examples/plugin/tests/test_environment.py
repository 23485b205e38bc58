"""The environment and its players."""

from __future__ import annotations

from functools import partial

import gem_core
import pytest
from gem_core.envs.players import get_player, play_episode
from gem_core.tools import ToolEnv, make_tool

from my_envs.coins import TURNS

ID = "my:Change-v0"


@pytest.mark.parametrize("parameters", [{}, {"most": 1}, {"part": "eval"}])
def test_it_behaves_as_trainers_need_it(parameters):
    gem_core.check_env(partial(gem_core.make, ID, **parameters))


@pytest.mark.parametrize("parameters", [{"most": 0}, {"most": 100}, {"most": 1, "part": "eval"}])
def test_parameters_without_an_amount_are_refused(parameters):
    with pytest.raises(ValueError, match="most"):
        gem_core.make(ID, **parameters)


def test_the_right_coin_ends_with_success_and_a_larger_one_without():
    env = gem_core.make(ID, most=1)
    env.reset(seed=0)
    assert env.step(r"\boxed{1}")[1:] == (1.0, True, False, {"success": True})
    env.reset(seed=0)
    assert env.step(r"\boxed{2}")[1:] == (0.0, True, False, {"success": False})


@pytest.mark.parametrize(
    ("action", "error"), [("one", "invalid_format"), (r"\boxed{3}", "invalid_action")]
)
def test_what_is_no_coin_costs_a_turn(action, error):
    env = gem_core.make(ID)
    env.reset(seed=0)
    for _ in range(TURNS - 1):
        assert env.step(action)[1:] == (-0.1, False, False, {"error": error})
    assert env.step(action)[1:] == (-0.1, True, False, {"success": False, "error": error})


def test_no_amount_of_the_training_is_in_the_evaluation():
    train = gem_core.make(ID, part="train").amounts
    held_out = gem_core.make(ID, part="eval").amounts
    assert sorted([*train, *held_out]) == list(range(1, 100))
    assert 0.1 < len(held_out) / 99 < 0.3


def test_the_expert_pays_every_amount():
    env = gem_core.make(ID)
    expert = get_player("expert", ID, env=env)
    assert all(play_episode(env, expert, seed=seed).success for seed in range(300))


def test_a_player_uses_the_tool():
    env = ToolEnv(gem_core.make(ID), [make_tool("my-coin")])
    asks = get_player("asks", ID, env=env)
    result = play_episode(env, asks, seed=0)
    assert result.success and env.calls == result.turns / 2
