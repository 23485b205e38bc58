"""Guess the Number."""

from __future__ import annotations

import pytest

import gem_core
from gem_core.env.interface import Env

EASY = "game:GuessTheNumber-v0-easy"


def with_target(target: int, **kwargs: object) -> Env:
    env = gem_core.make(EASY, **kwargs)
    for seed in range(1000):
        env.reset(seed=seed)
        if env._target == target:
            return env
    raise AssertionError(target)


def test_every_number_is_drawn_equally_often() -> None:
    env = gem_core.make(EASY)
    counts = [0] * 11
    for seed in range(5000):
        env.reset(seed=seed)
        counts[env._target] += 1
    assert counts[0] == 0 and all(400 < n < 600 for n in counts[1:])


def test_hints_and_hit() -> None:
    env = with_target(7)
    assert "is higher" in env.step("\\boxed{3}")[0]
    assert "is lower" in env.step("maybe \\boxed{2}, no, \\boxed{ 9 }")[0]
    _, reward, terminated, truncated, info = env.step("\\boxed{7}")
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)


def test_reward_at_the_limit_is_the_distance_of_a_valid_last_guess() -> None:
    env = with_target(7)
    for guess in (1, 2, 3):
        assert env.step(f"\\boxed{{{guess}}}")[1] == 0
    obs, reward, terminated, truncated, info = env.step("\\boxed{4}")
    assert reward == pytest.approx(1 - 3 / 9)
    assert (terminated, truncated, info["end"]) == (True, False, "max_turns")
    assert "is higher" in obs


@pytest.mark.parametrize("last", ["6", "0", "11", "-3"])
def test_a_repeated_or_impossible_last_guess_earns_nothing(last: str) -> None:
    env = with_target(7)
    for guess in (6, 2, 3):
        env.step(f"\\boxed{{{guess}}}")
    _, reward, terminated, _, info = env.step(f"\\boxed{{{last}}}")
    assert (reward, terminated, info["error"]) == (0.0, True, "invalid_action")


def test_compat_pays_a_repeated_last_guess_and_takes_zero_for_a_format_error() -> None:
    env = with_target(7, compat="gem-0.1.0")
    for _ in range(3):
        env.step("\\boxed{6}")
    assert env.step("\\boxed{6}")[1] == pytest.approx(1 - 1 / 9)
    env = with_target(7, compat="gem-0.1.0")
    _, reward, terminated, _, info = env.step("\\boxed{0}")
    assert (reward, terminated, info["error"]) == (-0.1, True, "invalid_format")


def test_zero_is_a_number_like_others() -> None:
    env = gem_core.make(EASY, min_number=-2, max_number=2)
    env.reset(seed=0)
    assert "error" not in env.step("\\boxed{0}")[4]


@pytest.mark.parametrize("seed", range(50))
def test_the_random_variant_can_be_won_by_binary_search(seed: int) -> None:
    env = gem_core.make("game:GuessTheNumber-v0-random")
    env.reset(seed=seed)
    assert 2**env._budget > env._high - env._low + 1
