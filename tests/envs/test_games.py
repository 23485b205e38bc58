"""Properties of all games: budget, rewards, formats, texts."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_core
from gem_core.envs import specs
from gem_core.envs.players import get_player, play_episode

GAMES = [spec.id for spec in specs() if spec.id.startswith("game:")]
EASY = [i for i in GAMES if i.endswith("-easy")]
# Only WikiGame charges for every step, and does not end at a wrong format.
FREE = [i for i in GAMES if "WikiGame" not in i]
FREE_EASY = [i for i in FREE if i.endswith("-easy")]


@pytest.mark.parametrize("env_id", GAMES)
def test_rewards_are_bounded_and_the_budget_ends_the_game(env_id: str) -> None:
    env = gem_core.make(env_id)
    rng = Random(0)
    for seed in range(20):
        env.reset(seed=seed)
        total = 0.0
        turns = 0
        over = False
        while not over:
            _, reward, over, truncated, info = env.step(env.random_action(rng))
            total = total + reward
            turns = turns + 1
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


@pytest.mark.parametrize("compat", [None, "gem-0.1.0"])
@pytest.mark.parametrize("env_id", FREE_EASY)
def test_text_about_the_format_does_not_replace_the_answer(env_id: str, compat: str | None) -> None:
    rng = Random(1)
    for closing in (
        ", which I wrote within \\boxed{}.",
        " in \\boxed{...}",
        " as \\boxed{ }, \\boxed{answer is 7!} and \\boxed{",
    ):
        plainly, chatty = (gem_core.make(env_id, compat=compat) for _ in range(2))
        plainly.reset(seed=0)
        chatty.reset(seed=0)
        action = plainly.random_action(rng)
        assert chatty.step(action + closing) == plainly.step(action)


@pytest.mark.parametrize("env_id", FREE_EASY)
def test_the_last_answer_in_the_right_form_counts(env_id: str) -> None:
    env, other = (gem_core.make(env_id, answer_format="tag") for _ in range(2))
    env.reset(seed=0)
    other.reset(seed=0)
    first, last = (env.random_action(Random(seed)) for seed in (1, 2))
    assert env.step(f"{first}{last}<answer>?!</answer>") == other.step(last)


@pytest.mark.parametrize(
    ("env_id", "number"),
    [
        ("game:GuessTheNumber-v0-easy", "{}"),
        ("game:Mastermind-v0-easy", "1 {}"),
        ("game:Minesweeper-v0-easy", "reveal {} 2"),
        ("game:Crosswords-v0-easy", "0 {} A"),
        ("game:Sudoku-v0-easy", "{} 1 1"),
        ("game:WordSearch-v0-easy", "1 1 1 {}"),
    ],
)
def test_any_way_to_write_a_number_is_read(env_id: str, number: str) -> None:
    def result(text: str) -> object:
        env = gem_core.make(env_id)
        env.reset(seed=0)
        return env.step(f"\\boxed{{{number.format(text)}}}")

    plain = result("3")
    for same in ("03", "0000000000000003", "0" * 5000 + "3", "+3"):
        assert result(same) == plain, same
    for outside in ("-3", "-1", "99", "9" * 13, "9" * 5000, "-" + "9" * 5000):
        obs, reward, terminated, _, info = result(outside)
        assert (info["error"], reward, terminated) == ("invalid_action", 0.0, False), outside
        assert "from" in obs or "between" in obs
    for no_number in ("3.0", "three", "3" * 5000 + "x"):
        assert result(no_number)[4]["error"] == "invalid_format"


def test_a_number_that_is_repeated_to_the_player_is_the_players_own() -> None:
    env = gem_core.make("game:GuessTheNumber-v0-easy")
    env.reset(seed=0)
    assert (
        "invalid move. 1000000000000000 is not between 1 and 10."
        in env.step("\\boxed{1000000000000000}")[0]
    )
    assert "invalid move. Your number is not between" in env.step(f"\\boxed{{{10**30}}}")[0]
    env = gem_core.make("game:Mastermind-v0-easy")
    env.reset(seed=0)
    obs = env.step(f"\\boxed{{{' '.join(['1'] * 150)}}}")[0]
    assert "the guess has 150." in obs


@pytest.mark.parametrize(("compat", "error"), [(None, "action"), ("gem-0.1.0", "format")])
def test_python_and_so_gem_read_no_number_of_more_than_4300_digits(
    compat: str | None, error: str
) -> None:
    env = gem_core.make("game:Sudoku-v0-easy", compat=compat)
    env.reset(seed=0)
    assert (
        env.step(f"\\boxed{{1 1 1}} \\boxed{{{'7' * 4301} 1 1}}")[4]["error"] == f"invalid_{error}"
    )
