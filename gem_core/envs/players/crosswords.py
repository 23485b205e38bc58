"""An expert for Crosswords that knows the clues."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from gem_core.envs.data.clues import clues
from gem_core.envs.players.player import Player

_CLUE = re.compile(r"^\d+\. (across|down) from row (\d+), column (\d+), \d+ letters: (.*)$", re.M)


class ClueBook(Player):
    """Looks the clues up and enters their words."""

    version = 1  # 1: reads what was played, instead of its own actions

    def __init__(self, rng: Random, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)
        self.words = {clue: word for hard in (False, True) for word, clue in clues(hard)}

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Solve all clues."""
        letters = {}
        for way, row, col, clue in _CLUE.findall(info["suffix"]):
            for i, letter in enumerate(self.words[clue]):
                if way == "across":
                    letters[int(row), int(col) + i] = letter
                else:
                    letters[int(row) + i, int(col)] = letter
        self.letters = sorted(letters.items())

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Fill the first empty cell."""
        grid = [line.split()[1:] for line in info["suffix"].splitlines()[1:]]
        for (row, col), letter in self.letters:
            if grid[row][col] == "_":
                return self.answer(f"{row} {col} {letter}")
        raise self.unreadable(info["suffix"])
