"""Starts near the end of a game: `max_pushes`, `hidden_safe` and `moves_left`."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import gem_core
from gem_core.envs.games.game_2048 import moves_to, slide
from gem_core.envs.players import get_player
from gem_core.errors import GemError

SEEDS = range(60)


def suffixes(env: Any) -> list[str]:
    return [env.reset(seed=seed)[1]["suffix"] for seed in SEEDS]


def played(env_id: str, seed: int, **kwargs: Any) -> tuple[bool, list[str]]:
    """Play the expert; return whether it succeeds, and the observations."""
    env = gem_core.make(env_id, **kwargs)
    player = get_player("expert", env_id, seed, env=env)
    shown: tuple[str, dict[str, Any]] = env.reset(seed=seed)
    player.reset(*shown)
    texts = []
    over = False
    while not over:
        observation, _, terminated, truncated, info = env.step(player.act(*shown))
        texts.append(observation)
        shown = observation, info
        over = terminated or truncated
    return info["success"], texts


@pytest.mark.parametrize("most", [1, 2])
def test_a_sokoban_room_is_solved_with_so_many_pushes(most: int) -> None:
    pushes = []
    for seed in SEEDS:
        solved, texts = played(
            "game:Sokoban-v0-easy",
            seed,
            dim_room=[5, 7],
            num_boxes=1,
            max_turns=15,
            max_pushes=most,
        )
        assert solved
        pushes.append(sum("pushed" in text for text in texts))
    assert set(pushes) <= set(range(1, most + 1)) and max(pushes) == most


def test_fewer_pushes_than_boxes_are_refused() -> None:
    with pytest.raises(ValueError, match="max_pushes must be from the number of boxes"):
        gem_core.make("game:Sokoban-v0-easy", max_pushes=1)


@pytest.mark.parametrize("hidden", [1, 2])
def test_so_many_safe_cells_of_minesweeper_are_hidden(hidden: int) -> None:
    options = {"rows": 3, "cols": 4, "num_mines": 3, "max_turns": hidden, "hidden_safe": hidden}
    env = gem_core.make("game:Minesweeper-v0-easy", **options)
    for seed in SEEDS:
        env.reset(seed=seed)
        total = 0.0
        for cell in product(range(3), range(4)):
            saved = env.get_state()  # type: ignore[attr-defined]
            row, col = cell
            _, reward, over, _, info = env.step(rf"\boxed{{reveal {row} {col}}}")
            if info.get("end") == "lost" or "error" in info:
                env.set_state(saved)  # type: ignore[attr-defined]
                continue
            total += reward
            if over:
                break
        assert over and info["success"] and total == pytest.approx(1)
    for board in suffixes(env):
        rows = [line.split()[1:] for line in board.splitlines()[1:-1]]
        assert sum(row.count(".") for row in rows) == 3 + hidden


def test_where_no_cell_can_stay_hidden_the_error_says_what_to_change() -> None:
    env = gem_core.make("game:Minesweeper-v0-easy", rows=30, cols=1, num_mines=1, hidden_safe=8)
    with pytest.raises(GemError, match="set it lower, or num_mines higher"):
        env.reset(seed=0)


@pytest.mark.parametrize("moves", [1, 2, 3])
def test_the_target_of_2048_is_so_many_moves_away(moves: int) -> None:
    env = gem_core.make("game:Game2048-v0-easy", target_tile=16, board_size=3, moves_left=moves)
    for board in suffixes(env):
        rows = tuple(
            tuple(0 if tile == "." else int(tile) for tile in line.split())
            for line in board.splitlines()[:-1]
        )
        assert sum(tile > 0 for row in rows for tile in row) == 5
        ways = [
            sequence
            for length in range(1, moves + 1)
            for sequence in product(("up", "down", "left", "right"), repeat=length)
            if _largest(rows, sequence) >= 16
        ]
        assert min(map(len, ways)) == moves == len(moves_to(rows, 16, 4))


def _largest(rows: tuple[tuple[int, ...], ...], sequence: tuple[str, ...]) -> int:
    for direction in sequence:
        rows = slide(rows, direction)
    return max(map(max, rows))


def test_a_target_that_is_too_far_is_an_error_that_says_what_to_change() -> None:
    env = gem_core.make("game:Game2048-v0-easy", target_tile=2048, board_size=2, moves_left=1)
    env.reset(seed=0)
    env = gem_core.make("game:Game2048-v0-easy", target_tile=8, board_size=2, moves_left=3)
    with pytest.raises(GemError, match="set moves_left or target_tile lower"):
        env.reset(seed=0)


@pytest.mark.parametrize("moves", [1, 2, 4])
def test_the_goal_of_hanoi_is_at_most_so_many_moves_away(moves: int) -> None:
    env_id = "game:TowerofHanoi-v0-easy"
    options = {"num_disks": 4, "moves_left": moves, "max_turns": moves + 1}
    solved = [played(env_id, seed, **options) for seed in SEEDS]
    assert sum(won for won, _ in solved) > 50
    assert all("where they have to be" in texts[-1] for won, texts in solved if won)
    goals = [board.partition("goal:\n")[2] for board in suffixes(gem_core.make(env_id, **options))]
    assert len({goal for goal in goals if goal.count("\n") == 4}) > 40


def test_without_these_options_the_games_are_as_before() -> None:
    for name in ("Sokoban", "Minesweeper", "Game2048", "TowerofHanoi"):
        board = gem_core.make(f"game:{name}-v0-easy").reset(seed=0)[1]["suffix"]
        assert "goal" not in board
