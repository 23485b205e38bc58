"""Habits for games with a board: the first move that is possible, or always the same number.

As in `gem_core.envs.players.habits`, each of them is read off the position without skill.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from gem_core.envs.games.game_2048 import moves_to, slide
from gem_core.envs.players.fifteen_puzzle import SlideSearch
from gem_core.envs.players.player import Player
from gem_core.envs.players.sudoku import read_board

_TARGET = re.compile(r"Reach the tile (\d+)")
_PEG = re.compile(r"^[ABC]: ([\d -]+)$", re.MULTILINE)
_DIRECTIONS = ("up", "down", "left", "right")
_NEAR = 3
"""Moves that `NearTarget` looks ahead."""


class _Reader(Player):
    """A player that reads the board it is shown and keeps nothing.

    Args:
        rng: the player's own generator.
        answer_format: the format of actions.
    """

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Do nothing: the board is always shown."""


class OneInFirstHole(_Reader):
    """Enters the number 1 into the first empty cell of a Sudoku, row by row."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Find the first empty cell."""
        cells = read_board(info["suffix"])
        row, col = divmod(cells.index(0), int(len(cells) ** 0.5))
        return self.answer(f"{row + 1} {col + 1} 1")


class FirstSlide(SlideSearch):
    """Slides the first tile that can be moved, in the order up, down, left, right."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Read which slides are possible."""
        return self.answer(self.possible(self.read(info["suffix"]))[0])


class FirstWalk(_Reader):
    """Walks to the first cell of a Sokoban room that is no wall: up, down, left, right."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Look around the player, whatever stands there."""
        rows = [line.split(" ") for line in info["suffix"].splitlines()[:-1]]
        r, c = next(
            (r, c) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell in "PS"
        )
        around = {"up": (r - 1, c), "down": (r + 1, c), "left": (r, c - 1), "right": (r, c + 1)}
        return self.answer(next(name for name, (s, d) in around.items() if rows[s][d] != "#"))


class FirstHidden(_Reader):
    """Reveals the first hidden cell of a Minesweeper board, row by row."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Find the first cell that is shown as hidden; a flag is taken away if there is none."""
        rows = [line.split()[1:] for line in info["suffix"].splitlines()[1:-1]]
        cells = [(r, c, cell) for r, row in enumerate(rows) for c, cell in enumerate(row)]
        hidden = [one for one in cells if one[2] == "."] or [one for one in cells if one[2] == "F"]
        r, c, cell = hidden[0]
        return self.answer(f"{'flag' if cell == 'F' else 'reveal'} {r} {c}")


class FirstDisk(_Reader):
    """Moves the first disk of Tower of Hanoi that can be moved: A to B, A to C, B to A, ..."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Compare the top disks of the pegs."""
        pegs = [text.replace("-", "").split() for text in _PEG.findall(info["suffix"])]
        tops = {name: int(peg[-1]) if peg else 99 for name, peg in zip("ABC", pegs, strict=True)}
        source, target = next((a, b) for a, b in product(tops, tops) if tops[a] < tops[b])
        return self.answer(f"{source} {target}")


class FirstShift(_Reader):
    """Plays the first direction of 2048 in which a tile moves: up, down, left, right."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Try the directions on the board that is shown."""
        return self.answer(self.first(self.rows(info["suffix"])))

    def rows(self, board: str) -> tuple[tuple[int, ...], ...]:
        """Return the tiles of a shown board, 0 for an empty cell."""
        return tuple(
            tuple(0 if tile == "." else int(tile) for tile in line.split())
            for line in board.splitlines()[:-1]
        )

    def first(self, rows: tuple[tuple[int, ...], ...]) -> str:
        """Return the first direction in which a tile moves."""
        return next(name for name in _DIRECTIONS if slide(rows, name) != rows)


class NearTarget(FirstShift):
    """Reaches the target of 2048 where three moves do, and shifts without a plan elsewhere."""

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Read the target."""
        rules = _TARGET.search(obs)
        if rules is None:
            raise self.unreadable(obs)
        self.target = int(rules[1])

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Look a few moves ahead, as if no new tiles appeared."""
        rows = self.rows(info["suffix"])
        moves = moves_to(rows, self.target, _NEAR)
        return self.answer(moves[0] if moves else self.first(rows))
