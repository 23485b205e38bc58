"""Sokoban: every room can be solved, and moves follow the rules."""

from __future__ import annotations

from random import Random

import pytest

import gem_core
from gem_core.env.interface import Env
from gem_core.envs.games.sokoban_room import make_room, reach
from gem_core.envs.players.sokoban import solve

EASY, HARD = "game:Sokoban-v0-easy", "game:Sokoban-v0-hard"


def at(*rows: str, **kwargs: object) -> Env:
    env = gem_core.make(EASY, **kwargs)
    env.reset(seed=0)
    text = "\n".join(" ".join(row) for row in rows)
    state = env.get_state()
    boxes = text.count("X") + text.count("√")
    done = text.count("√")
    state["fields"].update(
        _text=text,
        _width=len(rows[0]),
        _player=max(text.find("P"), text.find("S")),
        _boxes=boxes,
        _left=boxes - done,
    )
    env.set_state(state)
    return env


def board(env: Env) -> list[str]:
    return [line.replace(" ", "") for line in env._text.splitlines()]


@pytest.mark.parametrize(("height", "width", "boxes"), [(6, 6, 2), (8, 8, 4), (7, 10, 3)])
def test_rooms_are_sound_and_can_be_solved(height: int, width: int, boxes: int) -> None:
    for seed in range(25):
        room = make_room(height, width, boxes, Random(seed))
        assert len(set(room.boxes)) == len(set(room.goals)) == boxes
        assert not {*room.boxes} & {*room.goals} and room.player not in room.boxes
        assert all(room.floor >> cell & 1 for cell in (*room.boxes, *room.goals, room.player))
        border = [
            row * width + column
            for row in range(height)
            for column in range(width)
            if row in (0, height - 1) or column in (0, width - 1)
        ]
        assert not any(room.floor >> cell & 1 for cell in border)
        env = gem_core.make(EASY, dim_room=[height, width], num_boxes=boxes, max_turns=500)
        env.reset(seed=seed)
        plan = solve(env._board(), most=400_000)
        assert plan
        for move in reversed(plan):
            result = env.step(f"\\boxed{{{move}}}")
        assert result[1:3] == (1.0, True) and result[4]["success"]


def test_rooms_are_as_hard_as_those_of_gem() -> None:
    # Shortest solutions of gem-llm 0.1.0 have 24.0 moves in the mean (8x8, 4 boxes; the quartiles
    # are 17, 22, 28), and 7.0 (6x6, 2 boxes): see benchmarks/throughput.
    means = {}
    for env_id, episodes in ((EASY, 120), (HARD, 40)):
        env = gem_core.make(env_id)
        plans = [solve(env._board()) for seed in range(episodes) if env.reset(seed=seed)]
        means[env_id] = sum(map(len, plans)) / episodes
    assert 6 < means[EASY] < 8 and 20 < means[HARD] < 28


def test_reach_goes_through_free_cells_only() -> None:
    # 3 rows of 3 inside walls, the middle column blocked
    free = sum(1 << r * 5 + c for r in (1, 2, 3) for c in (1, 3))
    assert reach(free, 6, 5) == sum(1 << r * 5 + 1 for r in (1, 2, 3))


def test_moving_and_pushing() -> None:
    env = at("#######", "#P_X_O#", "#_____#", "#######", max_turns=50)
    assert "you moved right." in env.step("\\boxed{right}")[0]
    assert "pushed a box" in env.step("\\boxed{Right}")[0]
    assert board(env)[1] == "#__PXO#"
    _, reward, terminated, _, info = env.step("\\boxed{right}")
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    assert board(env)[1] == "#___P√#"


def test_a_box_may_leave_its_goal_and_the_player_shows_it() -> None:
    env = at("#######", "#P√_OX#", "#_____#", "#######", max_turns=50)
    env.step("\\boxed{right}")
    assert board(env)[1] == "#_SXOX#" and env._left == 2
    env.step("\\boxed{down}")
    assert board(env)[1] == "#_OXOX#" and board(env)[2] == "#_P___#"


@pytest.mark.parametrize(
    ("row", "move", "why"),
    [
        ("#P#XO_#", "right", "a wall."),
        ("#_PX#_O#", "right", "wall behind"),
        ("#PXXO_O#", "right", "box behind"),
    ],
)
def test_impossible_moves_change_nothing(row: str, move: str, why: str) -> None:
    env = at("#" * len(row), row, "#" * len(row))
    before = env._text
    obs, reward, terminated, _, info = env.step(f"\\boxed{{{move}}}")
    assert why in obs and (reward, terminated) == (0.0, False)
    assert info["error"] == "invalid_action" and env._text == before


def test_reward_at_the_limit_is_the_share_of_boxes_on_goals() -> None:
    env = at("########", "#P_X_O√#", "########", max_turns=1)
    _, reward, terminated, _, info = env.step("\\boxed{right}")
    assert (reward, terminated, info["end"]) == (0.5, True, "max_turns")


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="two numbers from 5 to 16"):
        gem_core.make(EASY, dim_room=[4, 6])
    with pytest.raises(ValueError, match="at most 2 boxes, not 5"):
        gem_core.make(EASY, num_boxes=5)
    with pytest.raises(ValueError, match="from 1 to 8"):
        gem_core.make(HARD, num_boxes=0)
