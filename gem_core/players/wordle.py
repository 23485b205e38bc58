"""Wordle by elimination."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from gem_core.data.words import upper_words
from gem_core.envs.games.wordle import marks
from gem_core.players.player import Player

_RULES = re.compile(r"word of (\d+) letters")
_MARKS = re.compile(r"you guessed\n([A-Z ]+)\n([GYX ]+)")
_LOOK = 40


class ConsistentWord(Player):
    """Guesses a word that agrees with all marks, one that tells much about the others.

    Args:
        rng: The player's own generator.
        words: The word list that the word is from.
        answer_format: How actions are written.
    """

    def __init__(self, rng: Random, words: str = "basic", answer_format: str = "boxed"):
        super().__init__(rng, answer_format)
        self.words = words

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """List the words of this length."""
        found = _RULES.search(obs)
        if found is None:
            raise self.unreadable(obs)
        self.candidates = list(upper_words(self.words, int(found[1])))

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Drop the words that the latest marks exclude, then guess."""
        found = _MARKS.search(obs)
        if found is not None:
            guess, seen = found[1].replace(" ", ""), found[2].split()
            self.candidates = [w for w in self.candidates if marks(w, guess) == seen]
        sample = self.rng.sample(self.candidates, min(_LOOK, len(self.candidates)))

        def kinds(guess: str) -> int:
            return len({tuple(marks(word, guess)) for word in sample})

        return self.answer(max(sample, key=kinds))
