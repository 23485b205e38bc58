"""Minesweeper: reveal every cell without a mine."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gem_core.envs.games.game import Game
from gem_core.envs.games.numbers import parse_ints, split_parts
from gem_core.errors import GemError

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult

_MOST_BOARDS = 1000
"""Boards that are drawn for one that `hidden_safe` allows."""
_PROMPT = "Enter your next move."
_CONTENTS = "*012345678"
_GEM_RULE = (
    " To win, all mines must be flagged when the last cell without a mine is revealed: flags that "
    "are placed later do not count."
)


class Minesweeper(Game):
    """Reveal all cells without a mine; flags are notes and are never needed.

    A revealed cell earns ``1 / safe cells``, so that a cleared board has earned 1. Revealing a mine
    ends the game. The first revealed cell and its neighbours never have a mine. The mines depend
    only on the seed and on the first cell: with the same seed they are the same, except for those
    that the first cell displaces. A flag must be removed before its cell can be revealed.

    With ``compat="gem-0.1.0"`` the game is won only if all mines are flagged when the last safe
    cell is revealed (a flag placed later does not win), revealing a flagged mine loses, and the
    mines are placed by the first attempt to reveal a cell, even a flagged one.

    Args:
        rows: rows of the board, at most 30; ``None`` draws a square board with a fifth of its
            cells mined at each reset.
        cols: columns, at most 30.
        num_mines: number of mines; at least 9 cells must stay free.
        max_turns: number of moves.
        hidden_safe: the end of a game: only so many safe cells are hidden at the start, and share
            the reward. Each has a mine around it and no 0. The mines may be anywhere and do not
            depend on the first cell. ``None``: every cell is hidden.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _gem_form = r"([a-zA-Z]+)\s(\d+)\s(\d+)"
    _state_fields = (*Game._state_fields, "_rows", "_cols", "_mines", "_cells", "_text", "_left")
    _rows: int
    _cols: int
    _mines: int
    _cells: str  # a mine "*" or the number of mines around, row by row; "" before the first reveal
    _text: str  # the board as shown
    _left: int  # safe cells that are not revealed

    def __init__(
        self,
        *,
        rows: int | None = 8,
        cols: int | None = 8,
        num_mines: int | None = 12,
        max_turns: int | None = 64,
        hidden_safe: int | None = None,
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, **options)
        if hidden_safe is not None and not 1 <= hidden_safe <= 8:
            raise ValueError(f"hidden_safe must be from 1 to 8, not {hidden_safe}.")
        self.hidden_safe = hidden_safe
        self.rows = rows
        self.cols = cols
        self.num_mines = num_mines
        self._varies = None in (rows, cols, num_mines, max_turns)
        if rows is not None and cols is not None and num_mines is not None:
            if not (1 <= rows <= 30 and 1 <= cols <= 30):
                raise ValueError(f"rows and cols must be from 1 to 30, not {rows} and {cols}.")
            if not 1 <= num_mines <= rows * cols - 9:
                raise ValueError(
                    f"num_mines must be from 1 to rows * cols - 9, not {num_mines}: the first "
                    "reveal keeps up to 9 cells free."
                )

    def _start(self) -> None:
        rows = self.rows
        cols = self.cols
        mines = self.num_mines
        if rows is None or cols is None or mines is None or self.max_turns is None:
            rows = 5 + int(self.rng.random() * 4)
            cols = rows
            mines = rows * cols // 5
            self._budget = rows * cols
        self._rows = rows
        self._cols = cols
        self._mines = mines
        self._cells = ""
        self._left = rows * cols - mines
        self._text = _empty(rows, cols)
        if self.hidden_safe is not None:
            self._start_near_end(self.hidden_safe)

    def _start_near_end(self, hidden: int) -> None:
        """Lay the mines anywhere and reveal all safe cells but some.

        Raises:
            GemError: no board was found.
        """
        around = _neighbours(self._rows, self._cols)
        size = self._rows * self._cols
        for _ in range(_MOST_BOARDS):
            cells = self._numbered(self.rng.sample(range(size), self._mines))
            stays = [
                cell
                for cell in range(size)
                if cells[cell] not in "*0" and all(cells[other] != "0" for other in around[cell])
            ]
            if len(stays) >= hidden:
                break
        else:
            raise GemError(
                f"Minesweeper: of {_MOST_BOARDS} boards none has {hidden} cells that hidden_safe "
                "can hide: set it lower, or num_mines higher."
            )
        self._cells = cells
        self._left = hidden
        kept = set(self.rng.sample(stays, hidden))
        for cell in range(size):
            if cells[cell] != "*" and cell not in kept:
                self._show(self._position(cell), cells[cell])

    def _consistent(self) -> bool:
        rows, cols = self._rows, self._cols
        if (rows, cols) != (self.rows, self.cols) and not 5 <= rows == cols <= 8:
            return False
        empty = _empty(rows, cols)
        text = self._text
        return (
            super()._consistent()
            and 1 <= self._mines <= rows * cols - 9
            and len(self._cells) in (0, rows * cols)
            and set(self._cells) <= set(_CONTENTS)
            and len(text) == len(empty)
            and all(
                a == b or (b == "." and a in f"F{_CONTENTS}")
                for a, b in zip(text, empty, strict=True)
            )
        )

    def _rules(self) -> str:
        return (
            f"You are playing Minesweeper on a board of {self._rows} rows and {self._cols} columns "
            f"with {self._mines} mines.\n"
            f"Reveal all cells without a mine within {self._budget} turns. Rows and columns are "
            "counted from 0. '.' is a cell that is not revealed, a number says how many of the up "
            "to 8 cells around it have a mine, 'F' is a flag. Revealing a mine loses the game; the "
            "first cell you reveal never has one. When a 0 is revealed, the cells around it are "
            "revealed as well.\n"
            "A flag is a note for yourself; flagging a flagged cell removes the flag. A flagged "
            "cell cannot be revealed."
            f"{_GEM_RULE if self.compat else ''}\n"
            f"Write your move like this, first the row, then the column: "
            f"{self._answer(self._example())} or "
            f"{self._answer(f'flag {self._rows - 1} {self._cols // 2}')}"
        )

    def _move(self, answer: str) -> StepResult:
        tokens = split_parts(answer, 3)
        if tokens is None:
            return self._malformed("it is not a command, a row and a column")
        place = parse_ints(tokens[1:])
        if place is None:
            return self._malformed("row and column are not whole numbers")
        row, col = place
        if not (0 <= row < self._rows and 0 <= col < self._cols):
            return self._invalid(
                f"Rows are from 0 to {self._rows - 1}, columns from 0 to {self._cols - 1}."
            )
        command = tokens[0].lower()
        if command == "reveal":
            return self._reveal(row, col)
        if command == "flag":
            return self._flag(row, col)
        return self._invalid("The command must be 'reveal' or 'flag'.")

    def _reveal(self, row: int, col: int) -> StepResult:
        cols = self._cols
        cell = row * cols + col
        at = (row + 1) * (3 * cols + 3) + 3 * col + 4
        shown = self._text[at]
        if not self._cells and (shown == "." or self.compat):
            self._cells = self._lay_mines(cell)
        if shown != "." and not (shown == "F" and self._flag_kills(cell)):
            state = "flagged" if shown == "F" else "revealed already"
            return self._invalid(f"The cell in row {row}, column {col} is {state}.")
        content = self._cells[cell]
        if content == "*":
            self._show(at, "*")
            obs = f"Turn {self._turn}: row {row}, column {col} has a mine. You have lost."
            return self._lose(obs, self._reward["fail"], "lost")
        if content == "0":
            count = self._flood(cell)
        else:
            self._show(at, content)
            count = 1
        self._left -= count
        safe = self.hidden_safe or self._rows * cols - self._mines
        reward = self._reward["step"] + self._reward["success"] * count / safe
        obs = (
            f"Turn {self._turn}: you revealed row {row}, column {col}; mines around it: {content}."
        )
        if not self._left and not (self.compat and self._has_unflagged_mine()):
            return self._win(f"{obs} All safe cells are revealed. You have won.", reward)
        return self._continue(obs, reward)

    def _flag(self, row: int, col: int) -> StepResult:
        at = (row + 1) * (3 * self._cols + 3) + 3 * col + 4
        shown = self._text[at]
        if shown not in ".F":
            return self._invalid(f"The cell in row {row}, column {col} is revealed already.")
        self._show(at, "F" if shown == "." else ".")
        done = "flagged" if shown == "." else "removed the flag from"
        obs = f"Turn {self._turn}: you {done} row {row}, column {col}."
        return self._continue(obs, self._reward["step"])

    def _show(self, at: int, content: str) -> None:
        text = self._text
        self._text = f"{text[:at]}{content}{text[at + 1 :]}"

    def _position(self, cell: int) -> int:
        row, col = divmod(cell, self._cols)
        return (row + 1) * (3 * self._cols + 3) + 3 * col + 4

    def _lay_mines(self, first: int) -> str:
        """Draw cells in an order that does not depend on ``first``; mine the first allowed ones."""
        around = _neighbours(self._rows, self._cols)
        free = {first, *around[first]}
        order = self.rng.sample(range(self._rows * self._cols), self._mines + 9)
        return self._numbered([cell for cell in order if cell not in free][: self._mines])

    def _numbered(self, mines: list[int]) -> str:
        """Return the contents of all cells: ``*``, or the number of mines around."""
        around = _neighbours(self._rows, self._cols)
        counts = [0] * (self._rows * self._cols)
        for mine in mines:
            for cell in around[mine]:
                counts[cell] += 1
        cells = list(map(str, counts))
        for mine in mines:
            cells[mine] = "*"
        return "".join(cells)

    def _flood(self, start: int) -> int:
        """Reveal a zero and all that follows from it; return the number of revealed cells."""
        around = _neighbours(self._rows, self._cols)
        cells = self._cells
        text = list(self._text)
        text[self._position(start)] = "0"
        count = 1
        queue = [start]
        for cell in queue:
            for other in around[cell]:
                at = self._position(other)
                if text[at] == ".":
                    text[at] = cells[other]
                    count += 1
                    if cells[other] == "0":
                        queue.append(other)
        self._text = "".join(text)
        return count

    def _flag_kills(self, cell: int) -> bool:
        return self.compat is not None and self._cells[cell : cell + 1] == "*"

    def _has_unflagged_mine(self) -> bool:
        text = self._text
        return any(c == "*" and text[self._position(i)] != "F" for i, c in enumerate(self._cells))

    def _board(self) -> str:
        return f"{self._text}\n{_PROMPT}"

    def _example(self) -> str:
        return f"reveal {self._rows // 2} {self._cols - 1}"

    def random_action(self, rng: Random) -> str:
        """Return a cell to reveal (9 times out of 10) or to flag, drawn from ``rng``."""
        random = rng.random
        command = "flag" if random() < 0.1 else "reveal"
        row = int(random() * self._rows)
        col = int(random() * self._cols)
        return self._answer(f"{command} {row} {col}")


def _empty(rows: int, cols: int) -> str:
    """Draw a board without a revealed cell; all lines have the same length."""
    head = "  " + "".join(f"{c:3}" for c in range(cols))
    return "\n".join([head, *(f"{r:2}" + "  ." * cols for r in range(rows))])


@cache
def _neighbours(rows: int, cols: int) -> tuple[tuple[int, ...], ...]:
    """Return for each cell the cells around it."""
    return tuple(
        tuple(
            s * cols + d
            for s in range(max(r - 1, 0), min(r + 2, rows))
            for d in range(max(c - 1, 0), min(c + 2, cols))
            if (s, d) != (r, c)
        )
        for r in range(rows)
        for c in range(cols)
    )
