"""Sudoku: unique puzzles, correct feedback."""

from __future__ import annotations

from random import Random

import pytest

import gem_core
from gem_core.env.interface import Env
from gem_core.envs.games.sudoku_grid import Board, full_grid, layout, solution

EASY, HARD = "game:Sudoku-v0-easy", "game:Sudoku-v0-hard"


def count_solutions(grid: list[int], side: int, limit: int = 2) -> int:
    return Board(layout(side), grid).solve({}, limit)


def brute_force(grid: list[int], side: int, limit: int = 2) -> int:
    """Count solutions by the plain definition, cell by cell."""
    if 0 not in grid:
        return 1
    index = grid.index(0)
    lay = layout(side)
    count = 0
    for number in range(1, side + 1):
        if all(grid[o[0]] != number for unit in lay.units[index] for o in unit):
            count += brute_force([*grid[:index], number, *grid[index + 1 :]], side, limit - count)
            if count >= limit:
                break
    return count


@pytest.mark.parametrize("env_id", [EASY, HARD])
def test_every_puzzle_has_one_solution_which_is_the_one_played(env_id: str) -> None:
    env = gem_core.make(env_id)
    for seed in range(40):
        env.reset(seed=seed)
        side = env._side
        cells = env._cells
        assert count_solutions(cells, side) == 1
        assert solution(cells, side) == list(map(int, env._solution))
        for unit in layout(side).units[0]:
            assert len({env._solution[o[0]] for o in unit}) == side - 1


@pytest.mark.parametrize("seed", range(30))
def test_the_solver_agrees_with_brute_force(seed: int) -> None:
    rng = Random(seed)
    grid = full_grid(4, rng)
    for index in rng.sample(range(16), 11):
        grid[index] = 0
    for limit in (1, 2, 300):
        assert count_solutions(grid, 4, limit) == brute_force(grid, 4, limit)


def test_a_contradiction_has_no_solution() -> None:
    assert solution([1, 1, *[0] * 14], 4) is None
    assert count_solutions([1, 2, 3, 0, 0, 0, 0, 4, *[0] * 8], 4) == 0


def test_difficulty_is_that_of_gem() -> None:
    holes = {EASY: set(), HARD: set()}
    for env_id, counts in holes.items():
        env = gem_core.make(env_id)
        for seed in range(60):
            env.reset(seed=seed)
            counts.add(env._holes)
    assert holes[EASY] <= set(range(7, 11)) and holes[HARD] <= set(range(43, 51))


def test_rules_tell_the_size_of_the_boxes() -> None:
    assert "2x2 box" in gem_core.make(EASY).reset(seed=0)[0]
    assert "3x3 box" in gem_core.make(HARD).reset(seed=0)[0]


def play(env: Env, index: int, number: int) -> tuple[str, float, bool, bool, dict[str, object]]:
    row, col = divmod(index, env._side)
    return env.step(f"\\boxed{{{row + 1} {col + 1} {number}}}")


@pytest.mark.parametrize("env_id", [EASY, HARD])
@pytest.mark.parametrize("seed", range(5))
def test_judgements_are_true(env_id: str, seed: int) -> None:
    env = gem_core.make(env_id, max_turns=10_000)
    env.reset(seed=seed)
    lay = layout(env._side)
    seen = set()
    for index in range(env._side**2):
        for number in range(1, env._side + 1):
            cells = env._cells[:]
            if cells[index] == 0 and number == int(env._solution[index]):
                continue
            obs, reward, _, _, info = play(env, index, number)
            assert (reward, info["error"], env._cells) == (0.0, "invalid_action", cells)
            breaks = any(cells[o[0]] == number for unit in lay.units[index] for o in unit)
            tried = [*cells[:index], number, *cells[index + 1 :]]
            if cells[index]:
                seen.add("filled")
                assert "is filled already" in obs
            elif breaks:
                seen.add("breaks")
                assert "is in the same" in obs
            else:
                seen.add("unsolvable")
                assert "cannot be solved with it" in obs
                assert count_solutions(tried, env._side) == 0
    assert {"filled", "breaks"} <= seen


def test_right_numbers_add_up_to_one_and_show_on_the_board() -> None:
    env = gem_core.make(EASY)
    env.reset(seed=3)
    total = 0.0
    while 0 in env._cells:
        index = env._cells.index(0)
        number = env._solution[index]
        obs, reward, terminated, _, info = play(env, index, number)
        total += reward
        assert reward == pytest.approx(1 / env._holes) and "is right" in obs
        shown = [int(c) for c in info["suffix"].split("Enter")[0] if c.isdigit()]
        assert len(shown) == 4 + 4 + 16 - env._cells.count(0)
    assert terminated and info["success"] and total == pytest.approx(1)


@pytest.mark.parametrize("answer", ["1,2,3", "1, 2, 3", "1 2  3", "\n1 2 3 "])
def test_ways_to_write_a_move(answer: str) -> None:
    env = gem_core.make(EASY)
    env.reset(seed=0)
    assert env.step(f"\\boxed{{{answer}}}")[4].get("error") != "invalid_format"


@pytest.mark.parametrize(
    ("answer", "error"),
    [("1 2", "format"), ("a b c", "format"), ("0 1 1", "action"), ("1 1 5", "action")],
)
def test_errors(answer: str, error: str) -> None:
    env = gem_core.make(EASY)
    env.reset(seed=0)
    assert env.step(f"\\boxed{{{answer}}}")[4]["error"] == f"invalid_{error}"


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="must be 4 or 9"):
        gem_core.make(HARD, scale=5)
    with pytest.raises(ValueError, match="holes must be from 1 to 16"):
        gem_core.make(EASY, holes=17)
