"""An expert for 2048 that looks two moves ahead."""

from __future__ import annotations

from math import log2
from typing import Any

from gem_core.envs.games.game_2048 import slide
from gem_core.envs.players.player import Player

_DIRECTIONS = ("left", "up", "down", "right")

Rows = tuple[tuple[int, ...], ...]


class LookAhead(Player):
    """Plays the move with the best mean value over the new tile, one more move ahead.

    A board is good when it has many empty cells, its largest tile in a corner, and neighbours of
    similar size.
    """

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Compare the moves that move something."""
        rows = read_tiles(info["suffix"])
        moved = {direction: slide(rows, direction) for direction in _DIRECTIONS}
        values = {direction: _after(board) for direction, board in moved.items() if board != rows}
        if not values:
            raise self.unreadable(info["suffix"])
        return self.answer(max(values, key=values.__getitem__))


def read_tiles(board: str) -> Rows:
    """Return the tiles of a shown board, 0 for an empty cell."""
    lines = board.splitlines()[:-1]
    return tuple(tuple(0 if tile == "." else int(tile) for tile in line.split()) for line in lines)


def _after(rows: Rows) -> float:
    """Return the mean, over the cell of a new 2, of the best value one move later."""
    outcomes = []
    for r, row in enumerate(rows):
        for c, tile in enumerate(row):
            if not tile:
                new = (*row[:c], 2, *row[c + 1 :])
                board = (*rows[:r], new, *rows[r + 1 :])
                boards = [slide(board, direction) for direction in _DIRECTIONS]
                values = [value(moved) for moved in boards if moved != board]
                outcomes.append(max(values, default=-1000.0))
    return sum(outcomes) / len(outcomes)


def value(rows: Rows) -> float:
    """Return a heuristic value of a board; higher is better."""
    empty = 0
    rough = 0.0
    for line in (*rows, *zip(*rows, strict=True)):
        last = 0
        for tile in line:
            if not tile:
                empty += 1
            else:
                if last:
                    rough += abs(log2(tile / last))
                last = tile
    tiles = [tile for row in rows for tile in row]
    largest = max(tiles)
    corner = largest in (rows[0][0], rows[0][-1], rows[-1][0], rows[-1][-1])
    return 4 * log2(largest) + 1.35 * empty - rough + 3 * corner
