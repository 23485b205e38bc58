"""The sliding puzzle by best-first search."""

from __future__ import annotations

from functools import cache
from heapq import heappop, heappush
from random import Random
from typing import Any

from gem_core.players.player import Player

_MOST = 60_000
#: How much more than the moves so far the estimate of the rest counts: 1 finds a shortest way.
_WEIGHTS = {2: 1.0, 3: 1.0}
_WEIGHT = 1.6


class SlideSearch(Player):
    """Plans a short way to the solved board, then follows it.

    The way is a shortest one up to 3x3; beyond that the search trades length for time.

    Args:
        rng: The player's own generator.
        answer_format: How actions are written.
    """

    def __init__(self, rng: Random, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Read the board and plan."""
        rows = [line.split() for line in info["suffix"].splitlines()[:-1]]
        side = len(rows)
        board = tuple(0 if name == "__" else int(name) for row in rows for name in row)
        self.plan = solve(board, side)

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Play the next move of the plan, any move when there is none."""
        return self.answer(self.plan.pop() if self.plan else self.rng.choice(("up", "left")))


def solve(board: tuple[int, ...], side: int) -> list[str]:
    """Return moves to the solved board, the last one first; ``[]`` if the search gives up."""
    goal = (*range(1, side * side), 0)
    weight = _WEIGHTS.get(side, _WEIGHT)
    came: dict[tuple[int, ...], tuple[tuple[int, ...] | None, str]] = {board: (None, "")}
    depth = {board: 0}
    queue = [(0.0, 0, board)]
    while queue and len(depth) < _MOST:
        _, _, at = heappop(queue)
        if at == goal:
            return _way_back(came, at)
        done = depth[at] + 1
        empty = at.index(0)
        for name, tile in _moves(side)[empty]:
            cells = list(at)
            cells[empty], cells[tile] = cells[tile], 0
            new = tuple(cells)
            if done < depth.get(new, _MOST):
                depth[new] = done
                came[new] = (at, name)
                rest = distance(new, side)
                heappush(queue, (done + weight * rest, rest, new))
    return []


def _way_back(
    came: dict[tuple[int, ...], tuple[tuple[int, ...] | None, str]], at: tuple[int, ...]
) -> list[str]:
    moves = []
    before, name = came[at]
    while before is not None:
        moves.append(name)
        before, name = came[before]
    return moves


def distance(board: tuple[int, ...], side: int) -> int:
    """Return a lower bound of the moves left: Manhattan distance and linear conflicts.

    Two tiles that are in their own row (or column) in the wrong order need two moves more.
    """
    far = _far(side)
    total = 0
    for at, tile in enumerate(board):
        if tile:
            total += far[tile][at]
    for r in range(side):
        row = board[r * side : (r + 1) * side]
        total += _conflicts(row, tuple(range(r * side + 1, (r + 1) * side + 1)))
        column = board[r::side]
        total += _conflicts(column, tuple(range(r + 1, side * side + 1, side)))
    return total


@cache
def _conflicts(line: tuple[int, ...], own: tuple[int, ...]) -> int:
    """Return two moves for each tile that has to leave the line; ``own``: its tiles in order."""
    here = [own.index(tile) for tile in line if tile in own]
    extra = 0
    while True:
        wrong = [
            sum((a < b) != (i < j) for j, b in enumerate(here) if i != j)
            for i, a in enumerate(here)
        ]
        worst = max(wrong, default=0)
        if not worst:
            return extra
        here.pop(wrong.index(worst))
        extra += 2


@cache
def _far(side: int) -> list[list[int]]:
    def steps(tile: int, at: int) -> int:
        (r, c), (s, d) = divmod(tile - 1, side), divmod(at, side)
        return abs(r - s) + abs(c - d)

    return [[steps(tile, at) for at in range(side * side)] for tile in range(side * side)]


@cache
def _moves(side: int) -> list[list[tuple[str, int]]]:
    found = []
    for empty in range(side * side):
        row, col = divmod(empty, side)
        found.append(
            [("up", empty + side)] * (row < side - 1)
            + [("down", empty - side)] * (row > 0)
            + [("left", empty + 1)] * (col < side - 1)
            + [("right", empty - 1)] * (col > 0)
        )
    return found
