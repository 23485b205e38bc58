"""Minesweeper."""

from __future__ import annotations

import pytest

import gem_core
from gem_core.env.interface import Env

EASY, HARD = "game:Minesweeper-v0-easy", "game:Minesweeper-v0-hard"


def opened(first: str = "2 2", seed: int = 0, **kwargs: object) -> Env:
    env = gem_core.make(EASY, max_turns=100, **kwargs)
    env.reset(seed=seed)
    env.step(f"\\boxed{{reveal {first}}}")
    return env


def hidden_safe(env: Env) -> list[int]:
    return [i for i, c in enumerate(env._cells) if c != "*" and env._text[env._position(i)] == "."]


def act(env: Env, command: str, cell: int) -> tuple[str, float, bool, bool, dict[str, object]]:
    row, col = divmod(cell, env._cols)
    return env.step(f"\\boxed{{{command} {row} {col}}}")


@pytest.mark.parametrize("env_id", [EASY, HARD])
@pytest.mark.parametrize("seed", range(15))
def test_revealing_all_safe_cells_wins_and_earns_one(env_id: str, seed: int) -> None:
    env = gem_core.make(env_id, max_turns=100)
    env.reset(seed=seed)
    total = env.step("\\boxed{reveal 0 0}")[1]
    done = env._left == 0
    while not done:
        _, reward, done, _, info = act(env, "reveal", hidden_safe(env)[0])
        total += reward
        assert reward > 0
    assert total == pytest.approx(1) and (info["success"], info["end"]) == (True, "solved")
    assert "*" not in env._text and "F" not in env._text


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("first", ["0 0", "2 2", "4 3"])
def test_the_first_cell_and_its_neighbours_are_free(first: str, seed: int) -> None:
    env = opened(first, seed)
    assert env._cells.count("*") == 5
    row, col = map(int, first.split())
    assert env._cells[row * 5 + col] == "0"


def test_numbers_count_the_mines_around() -> None:
    env = gem_core.make(HARD)
    env.reset(seed=1)
    env.step("\\boxed{reveal 3 3}")
    mines = {divmod(i, 8) for i, c in enumerate(env._cells) if c == "*"}
    for i, c in enumerate(env._cells):
        if c != "*":
            row, col = divmod(i, 8)
            around = {(row + r, col + d) for r in (-1, 0, 1) for d in (-1, 0, 1)}
            assert int(c) == len(around & mines)


def test_mines_follow_the_seed_and_the_first_cell_only_pushes_them_away() -> None:
    def mines(first: str, before: int) -> set[int]:
        env = gem_core.make(HARD)
        env.reset(seed=7)
        for _ in range(before):
            env.step("\\boxed{flag 7 7}")
        env.step(f"\\boxed{{reveal {first}}}")
        return {i for i, c in enumerate(env._cells) if c == "*"}

    assert mines("3 3", 0) == mines("3 3", 4)
    assert len(mines("0 0", 0) & mines("7 0", 0)) >= 12 - 8


def test_a_zero_opens_all_that_follows_but_no_flag() -> None:
    env = gem_core.make(EASY, num_mines=1, max_turns=50)
    env.reset(seed=0)
    env.step("\\boxed{flag 0 0}")
    env.step("\\boxed{reveal 4 4}")
    assert env._text[env._position(0)] == "F"
    assert env._left == len(hidden_safe(env)) + (env._cells[0] != "*")


def test_a_mine_loses() -> None:
    env = opened()
    obs, reward, terminated, _, info = act(env, "reveal", env._cells.index("*"))
    assert (reward, terminated, info["success"], info["end"]) == (0.0, True, False, "lost")
    assert "has a mine" in obs and "*" in info["suffix"]


def test_a_flagged_mine_is_safe_until_the_flag_is_taken_away() -> None:
    env = opened()
    mine = env._cells.index("*")
    assert act(env, "flag", mine)[1:3] == (0.0, False)
    assert act(env, "reveal", mine)[4]["error"] == "invalid_action"
    act(env, "flag", mine)
    assert act(env, "reveal", mine)[4]["end"] == "lost"


def test_compat_needs_flags_and_lets_a_flagged_mine_kill() -> None:
    env = opened(compat="gem-0.1.0")
    while hidden_safe(env):
        assert not act(env, "reveal", hidden_safe(env)[0])[2]
    mines = [i for i, c in enumerate(env._cells) if c == "*"]
    ends = [act(env, "flag", mine)[2] for mine in mines]
    assert not any(ends)  # GEM looks at the flags only when a cell is revealed
    assert act(env, "reveal", 12)[4]["error"] == "invalid_action"
    env = opened(compat="gem-0.1.0")
    for mine in mines:
        act(env, "flag", mine)
    while not (over := act(env, "reveal", hidden_safe(env)[0]))[2]:
        pass
    assert (over[4]["success"], over[4]["end"]) == (True, "solved")
    env = opened(compat="gem-0.1.0")
    act(env, "flag", env._cells.index("*"))
    assert act(env, "reveal", env._cells.index("*"))[4]["end"] == "lost"


@pytest.mark.parametrize("answer", ["reveal 2 2", "REVEAL 2,2", "reveal, 2, 2", " Flag  4\n4 "])
def test_ways_to_write_a_move(answer: str) -> None:
    env = gem_core.make(EASY)
    env.reset(seed=0)
    expected = "invalid_action" if answer.startswith("reveal,") else None
    assert env.step(f"\\boxed{{{answer}}}")[4].get("error") == expected


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("dig 1 1", "action"),
        ("reveal 5 0", "action"),
        ("reveal -1 0", "action"),
        ("reveal 99 0", "action"),
        ("2 2", "format"),
        ("reveal a b", "format"),
    ],
)
def test_errors(answer: str, error: str) -> None:
    env = gem_core.make(EASY)
    env.reset(seed=0)
    assert env.step(f"\\boxed{{{answer}}}")[4]["error"] == f"invalid_{error}"


def test_sizes_are_checked() -> None:
    for kwargs in ({"num_mines": 17}, {"rows": 31}, {"num_mines": 0}):
        with pytest.raises(ValueError, match="must be from 1"):
            gem_core.make(EASY, **kwargs)


def test_compat_places_the_mines_at_the_first_attempt_even_on_a_flag() -> None:
    for compat in (None, "gem-0.1.0"):
        env = gem_core.make(EASY, compat=compat).unwrapped
        env.reset(seed=0)
        env.step("\\boxed{flag 2 2}")
        assert env.step("\\boxed{reveal 2 2}")[4]["error"] == "invalid_action"
        assert bool(env._cells) is (compat is not None)
