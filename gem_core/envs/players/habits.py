"""Habits: the one action that a start plays where it does not play its teacher's.

A habit plays the same action in every position, or one that is read off it without skill, so that a
policy in which it is the likeliest action is a weak player when it is played greedily. Those of the
word games are in `gem_core.envs.players.word_habits`.
"""

from __future__ import annotations

import re
from typing import Any

from gem_core.envs.games.game_2048 import DIRECTIONS, moves_to, slide
from gem_core.envs.players.game_2048 import Rows, read_tiles
from gem_core.envs.players.guess_the_number import BinarySearch
from gem_core.envs.players.player import Player
from gem_core.envs.players.sudoku import read_board
from gem_core.envs.players.weak import AnyMove, HiddenCell, LegalDisk, LegalSlide, Wanderer

_TARGET = re.compile(r"Reach the tile (\d+)")
_NEAR = 3
"""Moves that `NearTarget` looks ahead."""


class LowestLeft(BinarySearch):
    """Guesses the smallest number that the hints leave: linear search."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Narrow the range by the hint, then play its lower end."""
        super().act(obs, info)
        return self.answer(self.low)


class OneInFirstHole(Player):
    """Enters the number 1 into the first empty cell of a Sudoku, row by row."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Find the first empty cell."""
        cells = read_board(info["suffix"])
        row, col = divmod(cells.index(0), int(len(cells) ** 0.5))
        return self.answer(f"{row + 1} {col + 1} 1")


class FirstMove(AnyMove):
    """Plays the first of the possible moves."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Read which moves are possible."""
        return self.answer(self.possible_moves(info["suffix"])[0])


class FirstSlide(FirstMove, LegalSlide):
    """Slides the first tile that can be moved, in the order up, down, left, right."""


class FirstWalk(FirstMove, Wanderer):
    """Walks to the first cell of a Sokoban room that is no wall: up, down, left, right."""


class FirstHidden(FirstMove, HiddenCell):
    """Reveals the first hidden cell of a Minesweeper board, row by row."""


class FirstDisk(FirstMove, LegalDisk):
    """Moves the first disk of Tower of Hanoi that can be moved: A to B, A to C, B to A, ..."""


class FirstShift(Player):
    """Plays the first direction of 2048 in which a tile moves: up, down, left, right."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Try the directions on the board that is shown."""
        return self.answer(self.first(read_tiles(info["suffix"])))

    def first(self, rows: Rows) -> str:
        """Return the first direction in which a tile moves."""
        return next(name for name in DIRECTIONS if slide(rows, name) != rows)


class NearTarget(FirstShift):
    """Reaches the target of 2048 where three moves do, and shifts without a plan elsewhere."""

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Read the target."""
        self.target = int(self.find(_TARGET, obs)[1])

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Look a few moves ahead, as if no new tiles appeared."""
        rows = read_tiles(info["suffix"])
        moves = moves_to(rows, self.target, _NEAR)
        return self.answer(moves[0] if moves else self.first(rows))
