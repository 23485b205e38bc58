"""Crosswords: fill words into a grid, letter by letter, from their clues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.envs.data.clues import clues
from gem_core.envs.games.game import Game
from gem_core.envs.games.numbers import parse_ints, split_parts
from gem_core.envs.games.word_grid import EMPTY, lay_words

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Crosswords(Game):
    """Enter one letter per turn.

    Each right letter earns ``1 / letters`` of those to be found, so that a filled grid has earned
    1. A wrong letter is not entered. Each clue states where its word begins.

    Args:
        hardcore: whether rarer words are drawn; ``None`` decides at random at each reset.
        num_words: number of words, from 1 to 6.
        num_clues: draw from this many clues only, the first of the list; ``None``: from all.
        hidden_letters: how many letters are to be found, at random places; the others are shown
            from the start. ``None``: all.
        max_turns: number of letters that may be entered; ``None``: 10 more than are hidden.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _gem_form = r"(\d+)\s+(\d+)\s+([a-zA-Z])"
    _state_fields = (*Game._state_fields, "_rows", "_cols", "_solution", "_text", "_clues", "_left")
    _rows: int
    _cols: int
    _solution: str  # the letters, row by row, "." where there is none
    _text: str  # the grid as shown, with "_" for letters to be found
    _clues: str
    _left: int

    def __init__(
        self,
        *,
        hardcore: bool | None = False,
        num_words: int | None = 3,
        max_turns: int | None = 30,
        num_clues: int | None = None,
        hidden_letters: int | None = None,
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, **options)
        if num_words is not None and not 1 <= num_words <= 6:
            raise ValueError(f"num_words must be from 1 to 6, not {num_words}.")
        if num_clues is not None and not (num_words or 3) <= num_clues:
            raise ValueError(f"num_clues must be at least num_words, not {num_clues}.")
        if hidden_letters is not None and hidden_letters < 1:
            raise ValueError(f"hidden_letters must be at least 1, not {hidden_letters}.")
        self.num_clues = num_clues
        self.hidden_letters = hidden_letters
        self.hardcore = hardcore
        self.num_words = num_words
        self._varies = max_turns is None

    def _start(self) -> None:
        rng = self.rng
        hardcore = self.hardcore
        if hardcore is None:
            hardcore = rng.random() < 0.5
        known = clues(hardcore)[: self.num_clues]
        count = self.num_words or 3
        while True:
            drawn = dict(rng.sample(known, count))
            grid = lay_words(list(drawn), rng, apart=True)
            if len(grid.placed) == count:
                break
        top, left, self._rows, self._cols = grid.box()
        rows = [
            "".join(grid.cells[r * grid.side + left :][: self._cols])
            for r in range(top, top + self._rows)
        ]
        self._solution = "".join(rows)
        self._text = self._show_letters(_draw(rows))
        self._left = self._text.count("_")
        if self.max_turns is None:
            self._budget = self._left + 10
        lines = []
        for k, (word, start, step) in enumerate(grid.placed, 1):
            row, col = divmod(start, grid.side)
            way = "across" if step == 1 else "down"
            where = f"{way} from row {row - top}, column {col - left}"
            lines.append(f"{k}. {where}, {len(word)} letters: {drawn[word]}")
        self._clues = "\n".join(lines)

    def _show_letters(self, text: str) -> str:
        """Return a drawn grid with all letters but ``hidden_letters`` of them."""
        if self.hidden_letters is None:
            return text
        places = [i for i, cell in enumerate(text) if cell == "_"]
        shown = list(text)
        letters = [cell for cell in self._solution if cell != EMPTY]
        for place, letter in zip(places, letters, strict=True):
            shown[place] = letter
        for place in self.rng.sample(places, min(self.hidden_letters, len(places))):
            shown[place] = "_"
        return "".join(shown)

    def _consistent(self) -> bool:
        cols = self._cols
        cells = self._solution
        if not (0 < cols <= 99 and 0 < self._rows <= 99 and len(cells) == self._rows * cols):
            return False
        drawn = _draw([cells[k : k + cols] for k in range(0, len(cells), cols)])
        return (
            super()._consistent()
            and cells.count(EMPTY) < len(cells)
            and len(self._text) == len(drawn)
            and all(
                a == b or (b == "_" and a.isalpha()) for a, b in zip(self._text, drawn, strict=True)
            )
            and self._left == self._text.count("_")
        )

    def _rules(self) -> str:
        return (
            "You are playing Crosswords.\n"
            f"Fill all cells shown as '_' with letters within {self._budget} turns, one letter per "
            "turn; cells shown as '.' stay empty. Rows and columns are counted from 0. A wrong "
            "letter is not entered and uses up the turn.\n"
            "Write your move as row, column, letter, for example: "
            f"{self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        tokens = split_parts(answer, 3)
        if tokens is None:
            return self._malformed("it is not a row, a column and a letter")
        letter = tokens[2].upper()
        if len(letter) != 1 or not "A" <= letter <= "Z":
            return self._malformed("the third part is not a letter")
        place = parse_ints(tokens[:2])
        if place is None:
            return self._malformed("row and column are not whole numbers")
        row, col = place
        if not (0 <= row < self._rows and 0 <= col < self._cols):
            return self._invalid(
                f"Rows are from 0 to {self._rows - 1}, columns from 0 to {self._cols - 1}."
            )
        return self._enter(row, col, letter)

    def _enter(self, row: int, col: int, letter: str) -> StepResult:
        cols = self._cols
        text = self._text
        at = (row + 1) * (3 * cols + 3) + 3 * col + 4
        if text[at] != "_":
            why = "has no letter" if text[at] == EMPTY else "is filled already"
            return self._invalid(f"The cell in row {row}, column {col} {why}.")
        if self._solution[row * cols + col] != letter:
            obs = f"Turn {self._turn}: {letter} in row {row}, column {col} is wrong."
            return self._continue(obs, self._reward["step"])
        self._text = f"{text[:at]}{letter}{text[at + 1 :]}"
        self._left -= 1
        letters = len(self._solution) - self._solution.count(EMPTY)
        letters = min(letters, self.hidden_letters or letters)
        reward = self._reward["step"] + self._reward["success"] / letters
        obs = f"Turn {self._turn}: {letter} in row {row}, column {col} is right."
        if not self._left:
            return self._win(f"{obs} The grid is filled. You have won.", reward)
        return self._continue(obs, reward)

    def _board(self) -> str:
        return f"{self._text}\n{self._clues}\nEnter your next letter."

    def _example(self) -> str:
        return "2 0 G"

    def random_action(self, rng: Random) -> str:
        """Return any letter in an empty cell, drawn from ``rng``."""
        random = rng.random
        cols = self._cols
        open_ = [i for i, c in enumerate(self._text) if c == "_"] or [3 * cols + 7]
        row, place = divmod(open_[int(random() * len(open_))], 3 * cols + 3)
        return self._answer(f"{row - 1} {(place - 4) // 3} {_LETTERS[int(random() * 26)]}")


def _draw(rows: list[str]) -> str:
    """Draw the grid with hidden letters; all lines have the same length."""
    lines = ["  " + "".join(f"{c:3}" for c in range(len(rows[0])))]
    for r, row in enumerate(rows):
        cells = "".join(f"  {EMPTY if c == EMPTY else '_'}" for c in row)
        lines.append(f"{r:2}{cells}")
    return "\n".join(lines)
