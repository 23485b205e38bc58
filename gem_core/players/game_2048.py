"""2048 by looking two moves ahead."""

from __future__ import annotations

from math import log2
from random import Random
from typing import Any

from gem_core.envs.games.game_2048 import slide
from gem_core.players.player import Player

_DIRECTIONS = ("left", "up", "down", "right")

Rows = tuple[tuple[int, ...], ...]


class LookAhead(Player):
    """Plays the move whose average outcome over the new tile is best, one more move ahead.

    A board is good when it has many empty cells, its largest tile in a corner, and neighbours of
    similar size.

    Args:
        rng: The player's own generator.
        answer_format: How actions are written.
    """

    def __init__(self, rng: Random, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Nothing to remember: the board says it all."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Compare the moves that move something."""
        lines = info["suffix"].splitlines()[:-1]
        rows = tuple(tuple(0 if x == "." else int(x) for x in line.split()) for line in lines)
        values = {d: _after(new) for d in _DIRECTIONS if (new := slide(rows, d)) != rows}
        if not values:
            raise self.unreadable(info["suffix"])
        return self.answer(max(values, key=values.__getitem__))


def _after(rows: Rows) -> float:
    """Return the mean, over the cell of a new 2, of the best value one move later."""
    outcomes = []
    for r, row in enumerate(rows):
        for c, tile in enumerate(row):
            if not tile:
                new = (*row[:c], 2, *row[c + 1 :])
                board = (*rows[:r], new, *rows[r + 1 :])
                moves = [m for d in _DIRECTIONS if (m := slide(board, d)) != board]
                outcomes.append(max(map(value, moves), default=-1000.0))
    return sum(outcomes) / len(outcomes)


def value(rows: Rows) -> float:
    """Return how promising a board is."""
    empty, rough, tiles = 0, 0.0, []
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
