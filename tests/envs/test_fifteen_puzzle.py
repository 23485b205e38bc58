"""The sliding puzzle."""

from __future__ import annotations

import pytest

import gem_core
from gem_core.env.interface import Env
from gem_core.envs.games.fifteen_puzzle import _steps, _write_solved

EASY, HARD = "game:FifteenPuzzle-v0-easy", "game:FifteenPuzzle-v0-hard"


def tiles(env: Env) -> list[int]:
    return [0 if name == "__" else int(name) for name in env._text.split()]


def solvable(board: list[int], side: int) -> bool:
    """The parity rule of Johnson and Story (1879)."""
    order = [t for t in board if t]
    inversions = sum(a > b for i, a in enumerate(order) for b in order[i + 1 :])
    row_from_below = side - board.index(0) // side
    return (inversions + (0 if side % 2 else row_from_below - 1)) % 2 == 0


def at(board: str, **kwargs: object) -> Env:
    env = gem_core.make(EASY, **kwargs)
    env.reset(seed=0)
    state = env.get_state()
    state["fields"].update(_text=board, _empty=board.split().index("__"))
    env.set_state(state)
    return env


@pytest.mark.parametrize("side", [2, 3, 4, 5])
def test_starts_can_be_solved_and_are_not(side: int) -> None:
    env = gem_core.make(EASY, num_rows=side)
    for seed in range(200):
        env.reset(seed=seed)
        board = tiles(env)
        assert sorted(board) == list(range(side * side)) and env._text != _write_solved(side)
        assert solvable(board, side)


def test_every_start_of_2x2_comes_up() -> None:
    env = gem_core.make(EASY)
    assert len({env._text for s in range(600) if env.reset(seed=s)}) == 12 - 1


def test_compat_shuffles_tiles_so_that_half_cannot_be_solved() -> None:
    env = gem_core.make(HARD, compat="gem-0.1.0")
    n = sum(solvable(tiles(env), 4) for s in range(400) if env.reset(seed=s))
    assert 150 < n < 250


def test_moves_are_named_by_the_tile() -> None:
    env = at(" 1 __\n 3  2")
    obs, reward, terminated, _, info = env.step("\\boxed{right}")
    assert "tile 1 moved right" in obs and info["suffix"].startswith("__  1\n 3  2\n")
    assert (reward, terminated) == (0.0, False)
    assert env.step("\\boxed{Left}")[4]["suffix"].startswith(" 1 __\n 3  2\n")
    _, reward, terminated, _, info = env.step("\\boxed{up}")
    assert (reward, terminated, info["success"]) == (1.0, True, True)


def test_moves_over_the_edge_are_invalid() -> None:
    env = at(" 1 __\n 3  2")
    for move in ("down", "left"):
        obs, _, terminated, _, info = env.step(f"\\boxed{{{move}}}")
        assert info["error"] == "invalid_action" and not terminated
        assert "There is no tile" in obs
    assert env.step("\\boxed{north}")[4]["error"] == "invalid_format"


def test_reward_at_the_limit_is_the_share_of_cells_in_place() -> None:
    env = at(" 1 __\n 3  2", max_turns=1)
    _, reward, terminated, _, info = env.step("\\boxed{right}")
    assert (reward, terminated, info["end"]) == (0.25, True, "max_turns")


def test_slides_are_equally_likely() -> None:
    for side in (2, 3, 4):
        for places in _steps(side):
            assert len(places) == 12
            assert len({places.count(p) for p in places}) == 1


def test_parameters_are_checked() -> None:
    for kwargs in ({"num_rows": 1}, {"num_rows": 10}, {"shuffle_moves": 0}):
        with pytest.raises(ValueError, match="must be"):
            gem_core.make(EASY, **kwargs)
