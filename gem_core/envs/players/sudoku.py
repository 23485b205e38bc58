"""An expert for Sudoku: the solver."""

from __future__ import annotations

from typing import Any

from gem_core.envs.games.sudoku_grid import solution
from gem_core.envs.players.player import Player


class Solver(Player):
    """Solves the puzzle once, then enters its numbers row by row."""

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Read the board and solve it."""
        cells = read_board(info["suffix"])
        solved = solution(cells, int(len(cells) ** 0.5))
        if solved is None:
            raise self.unreadable(info["suffix"])
        self.solved = solved

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Fill the first empty cell."""
        cells = read_board(info["suffix"])
        index = cells.index(0)
        row, col = divmod(index, int(len(cells) ** 0.5))
        return self.answer(f"{row + 1} {col + 1} {self.solved[index]}")


def read_board(text: str) -> list[int]:
    """Return the numbers of a shown board, row by row, 0 for an empty cell."""
    rows = [line.split()[1:] for line in text.splitlines() if line[:1].isdigit()]
    return [0 if token == "." else int(token) for row in rows for token in row if token != "|"]
