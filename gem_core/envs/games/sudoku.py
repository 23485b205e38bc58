"""Sudoku with 4x4 or 9x9 cells. Every puzzle has exactly one solution."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gem_core.envs.games.game import Game
from gem_core.envs.games.numbers import parse_ints, split_parts
from gem_core.envs.games.sudoku_grid import dig, full_grid, layout

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult

_SIZES = ((4, 10, 15), (9, 50, 50))
_SIDES = (4, 9)
"""(side, cells tried, turns) from which the random variant draws."""


class Sudoku(Game):
    """Enter one number per turn into a puzzle with one solution.

    Each right number earns ``1 / empty cells``, so that a solved puzzle has earned 1. A number that
    breaks a rule is not entered, and neither is one that breaks no rule yet but is not in the
    solution; the observation tells which of the two it was.

    Args:
        scale: side of the grid, 4 or 9; ``None`` draws size, holes and turns at each reset.
        holes: number of cells that the generator tries to empty. A cell keeps its number if there
            would be a second solution without it: 10 gives 8 to 10 empty cells of 16, 50 gives 45
            to 50 of 81. (GEM calls this parameter ``clues``.)
        max_turns: number of moves.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _gem_form = r"(\d+)\s(\d+)\s(\d+)"
    _state_fields = (
        *Game._state_fields,
        "_side",
        "_solution",
        "_text",
        "_holes",
        "_left",
    )
    _side: int
    _solution: str  # the numbers, row by row
    _text: str  # the board as shown; a move replaces one character of it
    _holes: int
    _left: int

    def __init__(
        self,
        *,
        scale: int | None = 9,
        holes: int | None = 50,
        max_turns: int | None = 50,
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, **options)
        if scale is not None and holes is not None and not 1 <= holes <= layout(scale).side ** 2:
            raise ValueError(f"holes must be from 1 to {scale**2}, not {holes}.")
        self.scale = scale
        self.holes = holes
        self._varies = scale is None or holes is None or max_turns is None

    def _start(self) -> None:
        side = self.scale
        holes = self.holes
        if side is None or holes is None or self.max_turns is None:
            side, holes, self._budget = self.rng.choice(_SIZES)
        self._side = side
        grid = full_grid(side, self.rng)
        cells = dig(grid, side, holes, self.rng)
        self._solution = "".join(map(str, grid))
        self._holes = cells.count(0)
        self._left = self._holes
        self._text = _draw(cells, side)

    @property
    def _cells(self) -> list[int]:
        """The numbers on the board, row by row, 0 for an empty cell."""
        text = self._text
        return [int(text[at]) if text[at] != "." else 0 for at in _positions(self._side)]

    def _consistent(self) -> bool:
        side = self._side
        if side not in _SIDES or len(self._solution) != side * side:
            return False
        text = self._text
        empty = _draw([0] * side * side, side)
        cells = set(_positions(side))
        digits = "123456789"[:side]
        return (
            super()._consistent()
            and len(text) == len(empty)
            and all(a in f".{digits}" if k in cells else a == empty[k] for k, a in enumerate(text))
            and all(digit in digits for digit in self._solution)
            and self._left == sum(text[at] == "." for at in cells)
            and self._holes > 0
        )

    def _rules(self) -> str:
        side = self._side
        box = layout(side).box
        return (
            f"You are playing Sudoku on a grid of {side}x{side} cells.\n"
            f"Fill the empty cells, shown as '.', with numbers from 1 to {side} so that every row, "
            f"every column and every {box}x{box} box has each number once. There is exactly one "
            f"solution. You have {self._budget} turns and enter one number per turn.\n"
            "A number that breaks a rule, or with which the puzzle can no longer be solved, is not "
            "entered and uses up the turn. Numbers on the board cannot be changed.\n"
            "Write your move as row, column, number, for example 4 in row 2, column 1: "
            f"{self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        tokens = split_parts(answer, 3)
        if tokens is None:
            return self._malformed("it is not three numbers: row, column, number")
        numbers = parse_ints(tokens)
        if numbers is None:
            return self._malformed("it is not three whole numbers")
        row, col, number = numbers
        side = self._side
        if not (1 <= row <= side and 1 <= col <= side and 1 <= number <= side):
            return self._invalid(f"Row, column and number must be from 1 to {side}.")
        index = (row - 1) * side + col - 1
        at = _positions(side)[index]
        if self._text[at] != ".":
            return self._invalid(f"Row {row}, column {col} is filled already.")
        if self._solution[index] != str(number):
            return self._invalid(self._objection(index, number))
        return self._enter(row, col, number, at)

    def _enter(self, row: int, col: int, number: int, at: int) -> StepResult:
        text = self._text
        self._text = f"{text[:at]}{number}{text[at + 1 :]}"
        self._left -= 1
        reward = self._reward["step"] + self._reward["success"] / self._holes
        obs = f"Turn {self._turn}: {number} in row {row}, column {col} is right."
        if not self._left:
            return self._win(f"{obs} The puzzle is solved. You have won.", reward)
        return self._continue(obs, reward)

    def _objection(self, index: int, number: int) -> str:
        """Return why a number is not accepted."""
        lay = layout(self._side)
        row, col = divmod(index, self._side)
        text = self._text
        at = _positions(self._side)
        digit = str(number)
        for unit, name in zip(lay.units[index], ("row", "column", "box"), strict=True):
            if digit in [text[at[other[0]]] for other in unit]:
                return f"{number} is in the same {name} as row {row + 1}, column {col + 1} already."
        return (
            f"{number} in row {row + 1}, column {col + 1} breaks no rule yet, but the puzzle "
            "cannot be solved with it."
        )

    def _board(self) -> str:
        return f"{self._text}\nEnter your next move."

    def _example(self) -> str:
        return "2 1 4"

    def random_action(self, rng: Random) -> str:
        """Return any number in any cell, drawn from ``rng``."""
        row, col, number = (int(rng.random() * self._side) + 1 for _ in range(3))
        return self._answer(f"{row} {col} {number}")


def _draw(cells: list[int], side: int) -> str:
    """Draw the board; all lines have the same length, so that a move replaces one character."""
    box = layout(side).box
    groups = [range(k, k + box) for k in range(0, side, box)]
    lines = ["    " + "   ".join(" ".join(f"{c + 1}" for c in group) for group in groups)]
    rule = "    " + "-+-".join("-" * (2 * box - 1) for _ in groups)
    for r in range(side):
        if r and r % box == 0:
            lines.append(rule)
        numbers = cells[r * side : (r + 1) * side]
        shown = " | ".join(" ".join(str(numbers[c] or ".") for c in group) for group in groups)
        lines.append(f"{r + 1} | {shown}")
    return "\n".join(lines)


@cache
def _positions(side: int) -> tuple[int, ...]:
    """Return the position of every cell in the drawing."""
    box = layout(side).box
    length = 4 + 2 * side - 1 + 2 * (box - 1) + 1
    return tuple(
        (1 + row + row // box) * length + 4 + 2 * col + 2 * (col // box)
        for row in range(side)
        for col in range(side)
    )
