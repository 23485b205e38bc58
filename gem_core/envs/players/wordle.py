"""An expert for Wordle: elimination."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from gem_core.envs.data.words import upper_words
from gem_core.envs.games.wordle import marks
from gem_core.envs.players.player import Player

_RULES = re.compile(r"word of (\d+) letters")
MARKS = re.compile(r"you guessed\n([A-Z ]+)\n([GYX ]+)")
_LOOK = 40
"""Number of candidates that are compared for a guess."""


class WordPlayer(Player):
    """Knows the words of a list that have the length of the hidden one.

    Args:
        rng: the player's own generator.
        words: the word list from which the word is drawn, or the words.
        answer_format: the format of actions.
    """

    env_options = ("answer_format", "words")

    def __init__(self, rng: Random, words: str | list[str] = "basic", answer_format: str = "boxed"):
        super().__init__(rng, answer_format)
        self.words = words

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """List the words of this length."""
        rules = self.find(_RULES, obs)
        self.candidates = list(upper_words(self.words, int(rules[1])))


class ConsistentWord(WordPlayer):
    """Guesses an informative word that is consistent with all marks."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Drop the words that the latest marks exclude, then guess."""
        feedback = MARKS.search(obs)
        if feedback is not None:
            last = feedback[1].replace(" ", "")
            shown = feedback[2].split()
            self.candidates = [word for word in self.candidates if marks(word, last) == shown]
        if not self.candidates:
            raise self.unreadable(obs)  # the word may be of another list
        sample = self.rng.sample(self.candidates, min(_LOOK, len(self.candidates)))

        def outcomes(guess: str) -> int:
            return len({tuple(marks(word, guess)) for word in sample})

        return self.answer(max(sample, key=outcomes))
