"""Place words across and down on a square grid so that they cross where possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    Placed = tuple[str, int, int]  # word, cell of its first letter, step to its next letter

EMPTY = "."


class WordGrid:
    """A square grid of letters.

    Args:
        side: number of rows and columns.
        apart: whether words may touch only where they cross, as in a crossword.

    Attributes:
        cells: the letters, row by row, `EMPTY` where there is none.
        placed: the words in the order in which they were placed.
    """

    def __init__(self, side: int, apart: bool):
        self.side = side
        self.apart = apart
        self.cells = [EMPTY] * side**2
        self.placed: list[Placed] = []

    def fits(self, word: str, row: int, col: int, step: int) -> bool:
        """Return whether a word can start in a cell: only over empty cells or equal letters."""
        side = self.side
        n = len(word)
        along = col if step == 1 else row
        if row < 0 or col < 0 or row >= side or col >= side or along + n > side:
            return False
        start = row * side + col
        under = self.cells[start : start + n * step : step]
        for letter, old in zip(word, under, strict=True):
            if old != EMPTY and old != letter:
                return False
        return not self.apart or self._apart(under, row, col, step)

    def _apart(self, under: list[str], row: int, col: int, step: int) -> bool:
        """Return whether the ends are empty, and the sides of every cell that is not a crossing."""
        n = len(under)
        across = step == 1
        ends = [(row, col - 1), (row, col + n)] if across else [(row - 1, col), (row + n, col)]
        if any(self._is_taken(r, c) for r, c in ends):
            return False
        if EMPTY not in under:
            return False
        for i, old in enumerate(under):
            if old == EMPTY:
                r, c = (row, col + i) if across else (row + i, col)
                sides = [(r - 1, c), (r + 1, c)] if across else [(r, c - 1), (r, c + 1)]
                if any(self._is_taken(s, d) for s, d in sides):
                    return False
        return True

    def _is_taken(self, row: int, col: int) -> bool:
        inside = 0 <= row < self.side and 0 <= col < self.side
        return inside and self.cells[row * self.side + col] != EMPTY

    def put(self, word: str, row: int, col: int, step: int) -> None:
        """Write a word into the grid."""
        start = row * self.side + col
        self.cells[start : start + len(word) * step : step] = word
        self.placed.append((word, start, step))

    def box(self) -> tuple[int, int, int, int]:
        """Return top row, left column, rows and columns of the part with letters."""
        side = self.side
        used = [divmod(i, side) for i, c in enumerate(self.cells) if c != EMPTY]
        rows = [row for row, _ in used]
        cols = [col for _, col in used]
        return min(rows), min(cols), max(rows) - min(rows) + 1, max(cols) - min(cols) + 1

    def crossings(self, word: str, step: int) -> list[tuple[int, int]]:
        """Return the cells where the word would cross a placed one at an equal letter."""
        side = self.side
        cells = []
        for other, start, other_step in self.placed:
            if other_step == step:
                continue
            row, col = divmod(start, side)
            for i, letter in enumerate(word):
                j = other.find(letter)
                while j >= 0:
                    cells.append((row + j, col - i) if step == 1 else (row - i, col + j))
                    j = other.find(letter, j + 1)
        return cells


def lay_words(words: list[str], rng: Random, *, apart: bool) -> WordGrid:
    """Place words on a grid of 1.5 times the length of the longest word, in random directions.

    The longest word is placed in the middle. Each further word crosses another one at a random
    place; if it cannot, it is placed in the first place where it fits. A word that fits nowhere is
    omitted.

    Args:
        words: the words, which must be different.
        rng: draws directions and crossings.
        apart: whether words may touch only where they cross.
    """
    words = sorted(words, key=len, reverse=True)
    side = round(len(words[0]) * 1.5)
    grid = WordGrid(side, apart)
    steps = [1 if rng.random() < 0.5 else side for _ in words]
    middle = side // 2
    edge = (side - len(words[0])) // 2
    if steps[0] == 1:
        grid.put(words[0], middle, edge, steps[0])
    else:
        grid.put(words[0], edge, middle, steps[0])
    for word, step in zip(words[1:], steps[1:], strict=True):
        _place(grid, word, step, rng)
    return grid


def scatter_words(words: list[str], side: int, rng: Random) -> WordGrid:
    """Place words one after another, each in any place where it fits, all equally likely.

    A word that fits nowhere is omitted.

    Args:
        words: the words, which must be different.
        side: number of rows and columns.
        rng: draws the places.
    """
    grid = WordGrid(side, apart=False)
    for word in words:
        places = [
            (row, col, step)
            for row in range(side)
            for col in range(side)
            for step in (1, side)
            if grid.fits(word, row, col, step)
        ]
        if places:
            grid.put(word, *places[int(rng.random() * len(places))])
    return grid


def _place(grid: WordGrid, word: str, step: int, rng: Random) -> None:
    crossings = grid.crossings(word, step)
    while crossings:
        at = int(rng.random() * len(crossings))
        row, col = crossings[at]
        if grid.fits(word, row, col, step):
            grid.put(word, row, col, step)
            return
        crossings[at] = crossings[-1]
        crossings.pop()
    for row in range(grid.side):
        for col in range(grid.side):
            if grid.fits(word, row, col, step):
                grid.put(word, row, col, step)
                return
