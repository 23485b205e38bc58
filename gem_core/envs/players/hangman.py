"""An expert for Hangman: elimination."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Any

from gem_core.envs.players.wordle import WordPlayer

_GUESS = re.compile(r"^Turn \d+: ([A-Z]+) is (?:in|not in|not|the)\b")


class TellingLetter(WordPlayer):
    """Guesses the most informative letter, or a word when no letter is more informative."""

    version = 1  # 1: reads what was played, instead of its own actions

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """List the words of this length."""
        super().reset(obs, info)
        self.guessed: set[str] = set()

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Drop the words that do not fit what was played, then guess."""
        self._read_guess(obs)
        shown = info["suffix"].splitlines()[0].split()
        self.candidates = [w for w in self.candidates if self._fits(w, shown)]
        if not self.candidates:
            raise self.unreadable(info["suffix"])  # the word may be of another list
        best = telling_letter(tuple(self.candidates), frozenset(self.guessed))
        return self.answer(best or self.rng.choice(self.candidates))

    def _read_guess(self, obs: str) -> None:
        """Read from the observation which guess was played."""
        guess = _GUESS.match(obs)
        if guess is None:
            return
        if len(guess[1]) == 1:
            self.guessed.add(guess[1])
        elif guess[1] in self.candidates:
            self.candidates.remove(guess[1])

    def _fits(self, word: str, shown: list[str]) -> bool:
        return all(
            w == s if s != "_" else w not in self.guessed for w, s in zip(word, shown, strict=True)
        )


@lru_cache(maxsize=4096)  # the same few positions come up in thousands of episodes
def telling_letter(candidates: tuple[str, ...], guessed: frozenset[str]) -> str:
    """Return the letter that tells the words apart best; "" if none is as good as a word.

    >>> telling_letter(("BAD", "BED", "BIG", "BIT"), frozenset())
    'D'
    """
    letters = sorted({letter for word in candidates for letter in word} - guessed)
    left = {letter: _left(candidates, letter) for letter in letters}
    best = min(letters, key=left.__getitem__, default="")
    return best if best and left[best] < (len(candidates) - 1) ** 2 else ""


def _left(candidates: tuple[str, ...], letter: str) -> int:
    """Return the sum of squares of the groups of words that the letter tells apart."""
    groups = Counter(tuple(w == letter for w in word) for word in candidates)
    return sum(n * n for n in groups.values())
