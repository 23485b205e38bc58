"""An expert for the sliding puzzle: best-first search."""

from __future__ import annotations

from functools import cache
from heapq import heappop, heappush

from gem_core.envs.games.fifteen_puzzle import slides_of
from gem_core.envs.players.planner import Planner

_MOST = 60_000
"""Positions after which the search gives up."""
_WEIGHTS = {2: 1.0, 3: 1.0}
"""Weight of the estimated rest in the search, by side; with 1 the solution is a shortest one."""
_WEIGHT = 1.6
"""The weight for larger boards."""


Board = tuple[int, ...]


class SlideSearch(Planner[Board]):
    """Plans a short solution, then follows it.

    Up to 3x3 cells the solution is a shortest one; on larger boards the search is faster, but the
    solution may be longer.
    """

    moves = ("up", "left")

    def read(self, board: str) -> Board:
        """Return the numbers of the tiles, row by row, 0 for the space."""
        rows = [line.split() for line in board.splitlines()[:-1]]
        return tuple(0 if name == "__" else int(name) for row in rows for name in row)

    def search(self, position: Board) -> list[str]:
        """Return the moves of a short solution."""
        return solve(position, _side(position))

    def after(self, position: Board, move: str) -> Board:
        """Return the board after a tile was moved into the space."""
        empty = position.index(0)
        return _slid(position, empty, slides_of(_side(position))[empty][move])

    def possible(self, board: Board) -> list[str]:
        """Return the moves for which there is a tile."""
        return list(slides_of(_side(board))[board.index(0)])


def _side(board: Board) -> int:
    return int(len(board) ** 0.5)


def _slid(board: Board, empty: int, tile: int) -> Board:
    """Return the board after the tile in cell ``tile`` was moved into the cell ``empty``."""
    cells = list(board)
    cells[empty] = cells[tile]
    cells[tile] = 0
    return tuple(cells)


def solve(board: Board, side: int) -> list[str]:
    """Return moves to the solved board, the last one first; ``[]`` if the search gives up."""
    goal = (*range(1, side * side), 0)
    weight = _WEIGHTS.get(side, _WEIGHT)
    came: dict[Board, tuple[Board | None, str]] = {board: (None, "")}
    depth = {board: 0}
    queue = [(0.0, 0, board)]
    while queue and len(depth) < _MOST:
        _, _, at = heappop(queue)
        if at == goal:
            return _way_back(came, at)
        done = depth[at] + 1
        empty = at.index(0)
        for name, tile in slides_of(side)[empty].items():
            new = _slid(at, empty, tile)
            if done < depth.get(new, _MOST):
                depth[new] = done
                came[new] = (at, name)
                rest = distance(new, side)
                heappush(queue, (done + weight * rest, rest, new))
    return []


def _way_back(came: dict[Board, tuple[Board | None, str]], at: Board) -> list[str]:
    moves = []
    before, name = came[at]
    while before is not None:
        moves.append(name)
        before, name = came[before]
    return moves


def distance(board: Board, side: int) -> int:
    """Return a lower bound of the moves left: Manhattan distance and linear conflicts.

    Two tiles that are in their own row (or column) but in the wrong order need two more moves.
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
        goal_row, goal_col = divmod(tile - 1, side)
        row, col = divmod(at, side)
        return abs(goal_row - row) + abs(goal_col - col)

    return [[steps(tile, at) for at in range(side * side)] for tile in range(side * side)]
