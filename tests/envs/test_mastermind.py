"""Mastermind."""

from __future__ import annotations

import itertools

import pytest

import gem_core
from gem_core.env.interface import Env
from gem_core.envs.players.mastermind import pegs

HARD = "game:Mastermind-v0-hard"


def with_code(code: str, env_id: str = HARD, **kwargs: object) -> Env:
    env = gem_core.make(env_id, **kwargs)
    env.reset(seed=0)
    state = env.get_state()
    state["fields"]["_code"] = code.split()
    env.set_state(state)
    return env


def test_pegs_and_rewards_for_progress() -> None:
    env = with_code("1 2 3 4")
    obs, reward, *_ = env.step("\\boxed{2 1 3 8}")
    assert "Black pegs: 1, white pegs: 2." in obs and reward == pytest.approx(0.25)
    obs, reward, *_ = env.step("\\boxed{8 2 7 6}")
    assert "Black pegs: 1, white pegs: 0." in obs and reward == 0
    _, reward, terminated, _, info = env.step("\\boxed{1 2 3 4}")
    assert (reward, terminated, info["success"]) == (pytest.approx(0.75), True, True)


def test_pegs_agree_with_the_definition() -> None:
    code = (1, 1, 2)
    for guess in itertools.product((1, 2, 3), repeat=3):
        env = with_code("1 1 2", code_length=3, num_numbers=3, duplicate_numbers=True, max_turns=50)
        obs = env.step(f"\\boxed{{{' '.join(map(str, guess))}}}")[0]
        if guess != code:
            assert "Black pegs: {}, white pegs: {}.".format(*pegs(code, guess)) in obs


@pytest.mark.parametrize("answer", ["1 2 3 4", "1,2,3,4", "1, 2, 3, 4", "1234", " 1  2\n3 4 "])
def test_ways_to_write_a_code(answer: str) -> None:
    assert with_code("1 2 3 4").step(f"\\boxed{{{answer}}}")[4]["success"] is True


def test_compat_reads_only_spaces() -> None:
    step = with_code("1 2 3 4", compat="gem-0.1.0").step
    assert step("\\boxed{1234}")[4]["error"] == "invalid_action"
    assert step("\\boxed{1, 2, 3, 4}")[4]["error"] == "invalid_format"


@pytest.mark.parametrize("answer", ["1 2 3", "1 2 3 9", "0 1 2 3", "1 2 3 4 5", "-1 2 3 4", "12"])
def test_invalid_moves_do_not_end_the_game(answer: str) -> None:
    env = with_code("1 2 3 4")
    _, reward, terminated, _, info = env.step(f"\\boxed{{{answer}}}")
    assert (reward, terminated, info["error"]) == (0.0, False, "invalid_action")


def test_a_repeated_guess_is_invalid_however_it_is_written() -> None:
    env = with_code("1 2 3 4")
    env.step("\\boxed{5 6 7 8}")
    assert env.step("\\boxed{5678}")[4]["error"] == "invalid_action"


@pytest.mark.parametrize("duplicates", [False, True])
def test_codes_are_drawn_from_all(duplicates: bool) -> None:
    env = gem_core.make(
        HARD, code_length=2, num_numbers=3, duplicate_numbers=duplicates, max_turns=5
    )
    codes = set()
    for seed in range(300):
        env.reset(seed=seed)
        codes.add(tuple(env._code))
    assert len(codes) == (9 if duplicates else 6)


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="num_numbers >= 5"):
        gem_core.make(HARD, code_length=5, num_numbers=4)
