"""Habits and simple players of the word games; see `gem_core.envs.players.habits`.

Each habit is a linear search: it takes the next candidate, whatever the game has told.
"""

from __future__ import annotations

import re
from string import ascii_uppercase
from typing import Any

from gem_core.envs.players.hangman import TellingLetter
from gem_core.envs.players.player import Player
from gem_core.envs.players.wordle import MARKS, ConsistentWord

_ENTERED = re.compile(r"^Turn \d+: ([A-Z]) in row \d+, column \d+ is (right|wrong)")


class FirstLetter(TellingLetter):
    """Guesses the first letter of the alphabet that was not guessed: a habit for Hangman."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Read what was guessed, then take the next letter."""
        self._read_guess(obs)
        left = [letter for letter in ascii_uppercase if letter not in self.guessed]
        return self.answer(left[0] if left else "A")


class NextWord(ConsistentWord):
    """Guesses the word that follows the latest guess in the list: a habit for Wordle."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Find the latest guess in the list; at first, and after the last word, play the first."""
        feedback = MARKS.search(obs)
        last = feedback[1].replace(" ", "") if feedback else ""
        after = self.candidates.index(last) + 1 if last in self.candidates else 0
        return self.answer(self.candidates[after % len(self.candidates)])


class NextLetters(ConsistentWord):
    """Keeps the green letters of a Wordle and takes the next letter in every other place.

    The letters of a place are those that the words of the list have there, in the order of the
    alphabet. It reads only the latest guess, so that a letter may come up again.
    """

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """List the letters of each place."""
        super().reset(obs, info)
        self.letters = [sorted(set(place)) for place in zip(*self.candidates, strict=True)]

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Change the letters that were not green; the first guess is any word."""
        feedback = MARKS.search(obs)
        if feedback is None:
            return self.answer(self.rng.choice(self.candidates))
        guess = zip(feedback[1].split(), feedback[2].split(), self.letters, strict=True)
        return self.answer("".join(_next(letter, mark, known) for letter, mark, known in guess))


def _next(letter: str, mark: str, known: list[str]) -> str:
    """Return the letter of a place after it was marked."""
    if mark == "G":
        return letter
    after = known.index(letter) + 1 if letter in known else 0
    return known[after % len(known)]


class NextLine(Player):
    """Names the whole rows of a Word Search from the first on, then the columns: a habit.

    A line is named again after all others, since the game does not show what was tried.
    """

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """List the lines of the grid."""
        last = len(info["suffix"].splitlines()) - 3
        self.todo = [f"{k} 0 {k} {last}" for k in range(last + 1)]
        self.todo += [f"0 {k} {last} {k}" for k in range(last + 1)]

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Name the next line."""
        self.todo.append(self.todo.pop(0))
        return self.answer(self.todo[-1])


class AlphabetInCell(Player):
    """Enters the letters of the alphabet, one after another, in the first empty cell: a habit.

    It reads no clue of the crossword.
    """

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Take the letter after one that was wrong; A in a new cell."""
        entered = _ENTERED.match(obs)
        letter = "A"
        if entered is not None and entered[2] == "wrong":
            letter = ascii_uppercase[(ascii_uppercase.index(entered[1]) + 1) % 26]
        for row, line in enumerate(info["suffix"].splitlines()[1:]):
            cells = line.split()[1:]
            if "_" in cells:
                return self.answer(f"{row} {cells.index('_')} {letter}")
        raise self.unreadable(info["suffix"])
