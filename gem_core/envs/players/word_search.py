"""An expert for Word Search that looks every line of the grid up in the word lists."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from gem_core.envs.data.words import LISTS, SYLLABLES, upper_words
from gem_core.envs.players.player import Player


class LongestFirst(Player):
    """Names the words of the lists that can be read in the grid.

    The player does not know which of them are hidden words. Long words rarely occur by chance, and
    the grid is 1.5 times as wide as the longest hidden word, so longer words come first, and among
    equally long ones those of the more common list.

    Args:
        rng: the player's own generator.
        words: the word list from which the words are drawn.
        side: the side of the grid, where the environment has one that is no function of the words.
        answer_format: the format of actions.
    """

    version = 1  # 1: reads what was played, instead of its own actions
    env_options = ("answer_format", "words", "side")

    def __init__(
        self,
        rng: Random,
        words: str = "basic",
        side: int | None = None,
        answer_format: str = "boxed",
    ):
        super().__init__(rng, answer_format)
        self.lists = _lists(words)
        self.side = side

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Find all words across and down."""
        lines = info["suffix"].splitlines()[1:-1]
        rows = ["".join(line.split()[1:]) for line in lines]
        columns = ["".join(column) for column in zip(*rows, strict=True)]
        longest = _longest(len(rows)) if self.side is None else {len(rows)}
        readable = [
            (score, word, (i, a, i, b))
            for i, line in enumerate(rows)
            for score, word, a, b in _readable(line, longest, self.lists)
        ]
        readable += [
            (score, word, (a, i, b, i))
            for i, line in enumerate(columns)
            for score, word, a, b in _readable(line, longest, self.lists)
        ]
        self.todo = [place for _, _, place in sorted(readable, reverse=True)]

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Name the next word, without words inside those that were found.

        A miss does not tell which place was named, so a place without a found word comes up again
        after all others.
        """
        lines = [line.split()[1:] for line in info["suffix"].splitlines()[1:-1]]
        while len(self.todo) > 1 and _is_found(lines, self.todo[0]):
            self.todo.pop(0)
        place = self.todo.pop(0)
        self.todo.append(place)
        return self.answer(" ".join(map(str, place)))


def _is_found(lines: list[list[str]], place: tuple[int, int, int, int]) -> bool:
    row, col, end_row, end_col = place
    cells = (cell for line in lines[row : end_row + 1] for cell in line[col : end_col + 1])
    return all(cell.islower() for cell in cells)


def _longest(side: int) -> set[int]:
    """Return the lengths of the longest hidden word that give a grid of this side."""
    return {n for n in range(1, side + 1) if round(n * 1.5) == side}


def _readable(
    line: str, longest: set[int], lists: tuple[frozenset[str], frozenset[str]]
) -> list[tuple[float, str, int, int]]:
    """Return ``(score, word, first, last)`` of the words that can be read in a line."""
    common, known = lists
    most = max(longest, default=len(line))
    words = []
    for first in range(len(line)):
        for last in range(first + 2, min(first + most, len(line))):
            word = line[first : last + 1]
            if word in known:
                score = len(word) + 0.5 * (word in common)
                words.append((score, word, first, last))
    return words


@cache
def _lists(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the common words and all words; the player cannot tell which list is played."""
    if name == SYLLABLES:
        made_up = frozenset(upper_words(name))
        return made_up, made_up
    common = frozenset(upper_words("basic"))
    return common, common.union(*(upper_words(name) for name in LISTS))
