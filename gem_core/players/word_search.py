"""Word Search by looking every line of the grid up in the word lists."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from gem_core.data.words import LISTS, upper_words
from gem_core.players.player import Player


class LongestFirst(Player):
    """Points at the words of a list that can be read in the grid.

    Which of them are hidden is not told: long words rarely come about by chance, and the grid is
    1.5 times as wide as the longest hidden word, so words of the commoner list, then longer ones,
    come first.

    Args:
        rng: The player's own generator.
        answer_format: How actions are written.
    """

    def __init__(self, rng: Random, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Find all words across and down."""
        lines = info["suffix"].splitlines()[1:-1]
        rows = ["".join(line.split()[1:]) for line in lines]
        columns = ["".join(column) for column in zip(*rows, strict=True)]
        longest = _longest(len(rows))
        found = [
            (score, word, (i, a, i, b))
            for i, line in enumerate(rows)
            for score, word, a, b in _readable(line, longest)
        ]
        found += [
            (score, word, (a, i, b, i))
            for i, line in enumerate(columns)
            for score, word, a, b in _readable(line, longest)
        ]
        self.todo = [where for _, _, where in sorted(found, reverse=True)]

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Point at the next word, leaving out those inside words that were found."""
        lines = [line.split()[1:] for line in info["suffix"].splitlines()[1:-1]]
        while len(self.todo) > 1 and _found(lines, self.todo[0]):
            self.todo.pop(0)
        where = self.todo.pop(0) if len(self.todo) > 1 else self.todo[0]
        return self.answer(" ".join(map(str, where)))


def _found(lines: list[list[str]], where: tuple[int, int, int, int]) -> bool:
    row, col, end_row, end_col = where
    cells = (cell for line in lines[row : end_row + 1] for cell in line[col : end_col + 1])
    return all(cell.islower() for cell in cells)


def _longest(side: int) -> set[int]:
    """Return the lengths of a longest word that make a grid of this side."""
    return {n for n in range(1, side + 1) if round(n * 1.5) == side}


def _readable(line: str, longest: set[int]) -> list[tuple[float, str, int, int]]:
    """Return ``(score, word, first, last)`` of the words that can be read in a line."""
    common, known = _lists()
    most = max(longest, default=len(line))
    found = []
    for first in range(len(line)):
        for last in range(first + 2, min(first + most, len(line))):
            word = line[first : last + 1]
            if word in known:
                found.append((len(word) + 0.5 * (word in common), word, first, last))
    return found


@cache
def _lists() -> tuple[frozenset[str], frozenset[str]]:
    common = frozenset(upper_words("basic"))
    return common, common.union(*(upper_words(name) for name in LISTS))
