"""2048."""

from __future__ import annotations

from math import log2
from random import Random

import pytest

import gem_core
from gem_core.env.interface import Env
from gem_core.envs.games.game_2048 import can_move, slide

EASY = "game:Game2048-v0-easy"


def at(*rows: tuple[int, ...], best: int = 2, **kwargs: object) -> Env:
    env = gem_core.make(EASY, board_size=len(rows), **kwargs)
    env.reset(seed=0)
    state = env.get_state()
    state["fields"].update(_rows=[list(r) for r in rows], _best=best, _first=2)
    env.set_state(state)
    return env


def plain_slide(line: list[int]) -> list[int]:
    """One line towards its start, by the definition: every tile merges at most once."""
    tiles = [t for t in line if t]
    merged = []
    while tiles:
        if len(tiles) > 1 and tiles[0] == tiles[1]:
            merged.append(2 * tiles[0])
            tiles = tiles[2:]
        else:
            merged.append(tiles.pop(0))
    return merged + [0] * (len(line) - len(merged))


def test_slides_agree_with_the_definition() -> None:
    rng = Random(0)
    for _ in range(2000):
        rows = tuple(tuple(rng.choice((0, 0, 2, 4, 8)) for _ in range(4)) for _ in range(4))
        left = tuple(tuple(plain_slide(list(r))) for r in rows)
        right = tuple(tuple(plain_slide(list(r[::-1]))[::-1]) for r in rows)
        columns = list(zip(*rows, strict=True))
        up = tuple(zip(*(plain_slide(list(c)) for c in columns), strict=True))
        down = tuple(zip(*(plain_slide(list(c[::-1]))[::-1] for c in columns), strict=True))
        moves = {"left": left, "right": right, "up": up, "down": down}
        assert {d: slide(rows, d) for d in moves} == moves
        if not any(0 in row for row in rows):
            assert can_move(rows) == any(new != rows for new in moves.values())


def test_a_new_largest_tile_earns_its_share_of_the_way() -> None:
    env = at((2, 2), (0, 0), target_tile=16, max_turns=50)
    assert env.step("\\boxed{left}")[1] == pytest.approx(1 / 3)
    env = at((8, 8), (0, 0), best=8, target_tile=16)
    _, reward, terminated, _, info = env.step("\\boxed{LEFT}")
    assert (reward, terminated, info["success"]) == (pytest.approx(1 / 3), True, True)


@pytest.mark.parametrize("seed", range(10))
def test_rewards_add_up_to_the_log_of_the_largest_tile(seed: int) -> None:
    env = gem_core.make(EASY, target_tile=2**20, max_turns=100)
    env.reset(seed=seed)
    first = env._best
    total = 0.0
    over = False
    rng = Random(seed)
    while not over:
        _, reward, over, _, _ = env.step(env.random_action(rng))
        total += reward
    assert total == pytest.approx((log2(env._best) - log2(first)) / (20 - log2(first)))


def test_a_move_without_effect_is_invalid_and_adds_no_tile() -> None:
    env = at((2, 0), (4, 0))
    _, reward, terminated, _, info = env.step("\\boxed{left}")
    assert (reward, terminated, info["error"]) == (0.0, False, "invalid_action")
    assert env._rows == ((2, 0), (4, 0))


def test_no_move_left_loses() -> None:
    env = at((8, 16), (2, 0), best=16)
    _, _, terminated, _, info = env.step("\\boxed{right}")
    if not terminated:  # the new tile may leave a merge
        assert can_move(env._rows)
    env = at((8, 16), (32, 0), best=32)
    _, _, terminated, _, info = env.step("\\boxed{right}")
    assert (terminated, info["success"], info["end"]) == (True, False, "lost")


def test_new_tiles_are_spread_and_mostly_twos() -> None:
    env = gem_core.make(EASY)
    places = set()
    values = []
    for seed in range(800):
        env.reset(seed=seed)
        for i, tile in enumerate(t for row in env._rows for t in row):
            if tile:
                places.add(i)
                values.append(tile)
    assert len(values) == 1600 and places == set(range(16))
    assert set(values) == {2, 4} and 0.85 < values.count(2) / 1600 < 0.95


def test_parameters_are_checked() -> None:
    for kwargs in ({"target_tile": 60}, {"target_tile": 4}, {"board_size": 1}):
        with pytest.raises(ValueError, match="must be"):
            gem_core.make(EASY, **kwargs)
