"""Word Search: find the words hidden in a square of letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.envs.data.words import language, upper_words
from gem_core.envs.games.game import Game
from gem_core.envs.games.numbers import parse_ints, split_parts
from gem_core.envs.games.word_grid import EMPTY, WordGrid, lay_words, scatter_words
from gem_core.errors import GemError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult

_MOST_DRAWS = 1000
"""Sets of words that are drawn for one that fits into the grid."""
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# A random byte below 234 = 9 * 26 becomes a letter, each equally often; the others are dropped.
_TO_LETTER = bytes(_LETTERS[i % 26] for i in range(256))
_DROPPED = bytes(range(234, 256))


class WordSearch(Game):
    """Name the first and the last cell of words that run across or down, forwards or backwards.

    The rules state the number of words, but not the words. Every word earns ``1 / words`` once, in
    either direction. With ``compat="gem-0.1.0"`` naming a found word backwards earns again, and
    other cells that happen to spell a hidden word do not count.

    Args:
        num_words: number of words, from 1 to 10.
        hardcore: draw words from the list ``"english"`` (38,981 words) instead of ``words``;
            ``None`` draws which at each reset.
        words: the word list: ``"basic"`` (3,710 words), ``"basic850"`` (850, as in GEM),
            ``"english"`` or ``"syllables"``. See `gem_core.envs.data.words`.
        word_length: length of all words; ``None``: any.
        side: number of rows and columns, at least ``word_length``, which has to be given; every
            word is then in a random place. ``None``: 1.5 times the length of the longest word,
            which is in the middle.
        max_turns: number of attempts.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _gem_form = r"(\d+)\s+(\d+)\s+(\d+)\s+(\d+)"
    _state_fields = (*Game._state_fields, "_side", "_grid", "_words", "_ends", "_found", "_tried")
    _side: int
    _grid: str  # the letters, row by row; those of found words in lower case
    _words: list[str]
    _ends: list[int]  # first and last cell of each word
    _found: list[str]
    _tried: list[int]  # codes of attempts

    def __init__(
        self,
        *,
        num_words: int | None = 5,
        hardcore: bool | None = False,
        max_turns: int | None = 20,
        words: str = "basic",
        word_length: int | None = None,
        side: int | None = None,
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, **options)
        if num_words is not None and not 1 <= num_words <= 10:
            raise ValueError(f"num_words must be from 1 to 10, not {num_words}.")
        self.num_words = num_words
        self.hardcore = hardcore
        if side is not None and (word_length is None or side < word_length):
            raise ValueError(
                f"side is {side}: give word_length too, and at most as long as the side, "
                f"not {word_length}."
            )
        self.words = words
        self.word_length = word_length
        self.side = side
        upper_words("english" if hardcore else words, word_length)
        self._varies = True  # the rules tell the size of the grid

    def _start(self) -> None:
        rng = self.rng
        hardcore = self.hardcore
        if hardcore is None:
            hardcore = rng.random() < 0.5
        if self.max_turns is None:
            self._budget = 20
        candidates = upper_words("english" if hardcore else self.words, self.word_length)
        grid = self._lay(candidates, self.num_words or 5)
        self._side = grid.side
        self._words = [word for word, _, _ in grid.placed]
        self._ends = []
        for word, first, step in grid.placed:
            self._ends += [first, first + (len(word) - 1) * step]
        self._grid = _fill("".join(grid.cells), rng)
        self._found = []
        self._tried = []

    def _lay(self, candidates: Sequence[str], count: int) -> WordGrid:
        """Draw different words until all of them have a place.

        Raises:
            GemError: no draw had one; the grid is too small, or there are too few words.
        """
        rng = self.rng
        for _ in range(_MOST_DRAWS):
            drawn = {candidates[int(rng.random() * len(candidates))]: None for _ in range(count)}
            if len(drawn) == count:
                if self.side is None:
                    grid = lay_words(list(drawn), rng, apart=False)
                else:
                    grid = scatter_words(list(drawn), self.side, rng)
                if len(grid.placed) == count:
                    return grid
        raise GemError(
            f"WordSearch: {count} words were drawn {_MOST_DRAWS} times, and they were not "
            "different or did not fit: give it fewer words, or a larger side."
        )

    def _consistent(self) -> bool:
        side = self._side
        ends = self._ends
        return (
            super()._consistent()
            and side > 0
            and len(self._grid) == side * side
            and 0 < len(self._words) == len(ends) // 2
            and len(ends) % 2 == 0
            and all(0 <= cell < side * side for cell in ends)
            and all(map(self._fits, self._words, ends[::2], ends[1::2]))
            and set(self._found) <= set(self._words)
        )

    def _fits(self, word: str, start: int, end: int) -> bool:
        step = 1 if start // self._side == end // self._side else self._side
        return len(range(start, end + 1, step)) == len(word)

    def _rules(self) -> str:
        last = self._side - 1
        kind = "English" if self.hardcore else language(self.words)
        return (
            "You are playing Word Search.\n"
            f"{len(self._words)} {kind} words are hidden in a square of letters, across (left to "
            f"right) or down. Find them within {self._budget} turns. Name a word by the row and "
            "the column of its first letter, then those of its last letter; rows and columns are "
            f"counted from 0 to {last}. Letters of the words that you have found are shown in "
            "lower case. Repeating an attempt uses up a turn.\n"
            "Write your move like this, for a word in row 1 from column 0 to column 3: "
            f"{self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        tokens = split_parts(answer, 4)
        if tokens is None:
            return self._malformed("it is not four numbers: row, column, row, column")
        numbers = parse_ints(tokens)
        if numbers is None:
            return self._malformed("it is not four whole numbers")
        row, col, end_row, end_col = numbers
        side = self._side
        if not (
            0 <= row < side and 0 <= col < side and 0 <= end_row < side and 0 <= end_col < side
        ):
            return self._invalid(f"Rows and columns are from 0 to {side - 1}.")
        if row != end_row and col != end_col:
            return self._invalid("A word is in one row or in one column.")
        return self._attempt(row * side + col, end_row * side + end_col)

    def _attempt(self, first: int, last: int) -> StepResult:
        code = first * self._side**2 + last
        if code in self._tried:
            return self._invalid("You have tried this before.")
        self._tried.append(code)
        if first > last and not self.compat:
            first, last = last, first
        for word, start, end in zip(self._words, self._ends[::2], self._ends[1::2], strict=True):
            here = (start, end) in ((first, last), (last, first))
            if here or (not self.compat and self._spells(word, first, last)):
                return self._hit(word, start, end)
        obs = f"Turn {self._turn}: there is no hidden word in this place."
        return self._continue(obs, self._reward["step"])

    def _spells(self, word: str, first: int, last: int) -> bool:
        """Return whether other cells happen to have the letters of the word."""
        side = self._side
        step = 1 if first // side == last // side else side
        cells = self._grid[min(first, last) : max(first, last) + 1 : step]
        return len(cells) == len(word) and cells.upper() == word

    def _hit(self, word: str, start: int, end: int) -> StepResult:
        if word in self._found and not self.compat:
            return self._invalid(f"You have found {word} before.")
        side = self._side
        step = 1 if start // side == end // side else side
        cells = list(self._grid)
        cells[start : end + 1 : step] = word.lower()
        self._grid = "".join(cells)
        if word not in self._found:
            self._found.append(word)
        reward = self._reward["step"] + self._reward["success"] / len(self._words)
        obs = f"Turn {self._turn}: {word} is a hidden word."
        if len(self._found) == len(self._words):
            return self._win(f"{obs} All words are found. You have won.", reward)
        return self._continue(obs, reward)

    def _board(self) -> str:
        side = self._side
        names = [f"{n:2}" for n in range(side)]
        rows = [self._grid[r * side : (r + 1) * side] for r in range(side)]
        lines = [f"{name}  {'  '.join(row)}" for name, row in zip(names, rows, strict=True)]
        count = f"Words found: {len(self._found)} of {len(self._words)}. Enter your next move."
        return "\n".join([f"   {' '.join(names)}", *lines, count])

    def _example(self) -> str:
        return "1 0 1 3"

    def random_action(self, rng: Random) -> str:
        """Return any two cells in one row or column, drawn from ``rng``."""
        side = self._side
        random = rng.random
        row, col, end = (int(random() * side) for _ in range(3))
        if random() < 0.5:
            return self._answer(f"{row} {col} {row} {end}")
        return self._answer(f"{row} {col} {end} {col}")


def _fill(cells: str, rng: Random) -> str:
    """Put random letters into the empty cells."""
    parts = cells.split(EMPTY)
    need = len(parts) - 1
    letters = b""
    while len(letters) < need:
        letters += rng.randbytes(need + need // 8 + 8).translate(_TO_LETTER, _DROPPED)
    text = letters.decode()
    return parts[0] + "".join([a + b for a, b in zip(text, parts[1:], strict=False)])
