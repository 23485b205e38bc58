"""What all games promise: budget, rewards, formats, texts."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_core
from gem_core.envs import specs
from gem_core.players import get_player, play_episode

GAMES = [spec.id for spec in specs() if spec.id.startswith("game:")]
EASY = [i for i in GAMES if i.endswith("-easy")]
# WikiGame alone has a price for every step, and does not end at a wrong format.
FREE = [i for i in GAMES if "WikiGame" not in i]
FREE_EASY = [i for i in FREE if i.endswith("-easy")]


@pytest.mark.parametrize("env_id", GAMES)
def test_rewards_are_bounded_and_the_budget_ends_the_game(env_id: str) -> None:
    env = gem_core.make(env_id)
    rng = Random(0)
    for seed in range(20):
        env.reset(seed=seed)
        total, turns, over = 0.0, 0, False
        while not over:
            _, reward, over, truncated, info = env.step(env.random_action(rng))
            total, turns = total + reward, turns + 1
            assert not truncated and (reward >= 0 or env_id not in FREE)
        assert total <= 1 + 1e-9
        assert info["success"] == (info["end"] == "solved")
        assert info["end"] in ("solved", "max_turns", "lost")
        if info["end"] == "max_turns":
            assert turns == env._budget


@pytest.mark.parametrize("env_id", FREE_EASY)
def test_a_wrong_format_ends_the_game_and_costs(env_id: str) -> None:
    env = gem_core.make(env_id)
    env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step("I do not know")
    assert (reward, terminated, truncated) == (-0.1, True, False)
    assert (info["error"], info["end"], info["success"]) == (
        "invalid_format",
        "format_error",
        False,
    )
    assert "\\boxed{" in obs


@pytest.mark.parametrize("env_id", EASY)
def test_a_wrong_format_may_cost_a_turn_only(env_id: str) -> None:
    env = gem_core.make(
        env_id, format_error_ends=False, rewards={"format_error": -0.5}, max_turns=2
    )
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step("I do not know")
    assert (reward, terminated, info["error"]) == (-0.5, False, "invalid_format")
    obs, _, terminated, truncated, info = env.step("nor do I")
    assert (terminated, truncated, info["end"]) == (True, False, "max_turns")
    assert "not understood" in obs and "All 2 turns" in obs


@pytest.mark.parametrize("answer_format", ["boxed", "tag", "plain"])
@pytest.mark.parametrize("env_id", EASY)
def test_the_example_in_the_rules_is_well_formed(env_id: str, answer_format: str) -> None:
    env = gem_core.make(env_id, answer_format=answer_format)
    rules, _ = env.reset(seed=0)
    example = env._answer(env._example())
    assert example in rules
    assert env.step(example)[4].get("error") != "invalid_format"


@pytest.mark.parametrize("env_id", GAMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_board_is_in_the_suffix_at_every_step(env_id: str, seed: int) -> None:
    env = gem_core.make(env_id)
    _, info = env.reset(seed=seed)
    rng = Random(seed)
    over = False
    while not over:
        assert info["suffix"] == env._board()
        _, _, over, _, info = env.step(env.random_action(rng))
    assert "suffix" in info


@pytest.mark.parametrize("env_id", EASY)
@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_a_game(env_id: str, text: str) -> None:
    env = gem_core.make(env_id, format_error_ends=False)
    env.reset(seed=0)
    for action in (text, f"\\boxed{{{text}}}"):
        obs, reward, _, _, info = env.step(action)
        assert len(obs) < 500 and -0.2 <= reward <= 1
        assert info.get("error") in (None, "invalid_format", "invalid_action")


@pytest.mark.parametrize("env_id", [i for i in GAMES if i.endswith("-random")])
def test_the_random_variant_varies(env_id: str) -> None:
    env = gem_core.make(env_id)
    assert len({env.reset(seed=seed)[0] for seed in range(20)}) > 1


@pytest.mark.parametrize("env_id", FREE_EASY)
def test_success_reward_scales_the_whole_game(env_id: str) -> None:
    env = gem_core.make(env_id, rewards={"success": 10.0})
    player = get_player("expert", env_id, 0)
    result = next(r for r in (play_episode(env, player, seed=s) for s in range(20)) if r.success)
    assert result.reward == pytest.approx(10.0)


@pytest.mark.parametrize("env_id", GAMES)
def test_actions_of_any_length_leave_observations_short(env_id: str) -> None:
    env = gem_core.make(env_id, format_error_ends=False)
    env.reset(seed=0)
    longest = len(env.reset(seed=0)[0]) + 300
    for text in ("A" * 10**5, "1 " * 10**5, "up " * 10**5, "reveal 1 " + "1" * 10**5):
        env.reset(seed=0)
        obs, *_, info = env.step(f"\\boxed{{{text}}}")
        assert len(obs) < longest and info["error"]


@pytest.mark.parametrize("env_id", GAMES)
def test_compat_keeps_the_promises_of_an_environment(env_id: str) -> None:
    gem_core.check_env(env_id, compat="gem-0.1.0", skip=("process",))
