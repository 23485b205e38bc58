"""An expert for Mastermind: elimination."""

from __future__ import annotations

import re
from itertools import permutations, product
from math import perm
from typing import Any

from gem_core.envs.players.player import Player
from gem_core.errors import GemError

_RULES = re.compile(r"secret code of (\d+) numbers.*from 1 to (\d+).*a number (may|does not) occur")
_PEGS = re.compile(r"you guessed ([\d ]+)\. Black pegs: (\d+), white pegs: (\d+)")
_MOST = 100_000
"""Largest number of codes that are enumerated."""


class ConsistentGuess(Player):
    """Guesses a random code that is consistent with all pegs so far."""

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """List all codes."""
        rules = self.find(_RULES, obs)
        length = int(rules[1])
        numbers = range(1, int(rules[2]) + 1)
        repeats = rules[3] == "may"
        count = len(numbers) ** length if repeats else perm(len(numbers), length)
        if count > _MOST:
            raise GemError(
                f"{type(self).__name__} can enumerate at most {_MOST} codes, not {count}; play a "
                "smaller game."
            )
        codes = product(numbers, repeat=length) if repeats else permutations(numbers, length)
        self.codes = list(codes)

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Drop the codes that the latest pegs exclude, then guess."""
        feedback = _PEGS.search(obs)
        if feedback is not None:
            guess = tuple(map(int, feedback[1].split()))
            marks = int(feedback[2]), int(feedback[3])
            self.codes = [code for code in self.codes if pegs(code, guess) == marks]
        return self.answer(" ".join(map(str, self.rng.choice(self.codes))))


def pegs(code: tuple[int, ...], guess: tuple[int, ...]) -> tuple[int, int]:
    """Return the black and the white pegs of a guess.

    >>> pegs((1, 2, 3, 4), (1, 3, 2, 5))
    (1, 2)
    """
    black = sum(a == b for a, b in zip(code, guess, strict=True))
    common = sum(min(code.count(n), guess.count(n)) for n in set(guess))
    return black, common - black
