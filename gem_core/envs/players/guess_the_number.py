"""An expert for Guess the Number: binary search."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from gem_core.envs.players.player import Player

_RANGE = re.compile(r"A number from (-?\d+) to (-?\d+)")
_HINT = re.compile(r"you guessed (-?\d+)\. The number is (higher|lower)")


class BinarySearch(Player):
    """Guesses the middle of the range that the hints leave.

    Args:
        rng: the player's own generator.
        noise: probability that a guess is drawn from the whole range instead. With noise, behaviour
            cloning gives an imperfect policy that can still improve.
        answer_format: the format of actions.
    """

    def __init__(self, rng: Random, noise: float = 0.0, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)
        if not 0 <= noise <= 1:
            raise ValueError(f"noise is a probability, not {noise}.")
        self.noise = noise

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Read the range from the rules."""
        bounds = self.find(_RANGE, obs)
        self.first = int(bounds[1])
        self.last = int(bounds[2])
        self.low = self.first
        self.high = self.last

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Narrow the range by the hint, then guess."""
        hint = _HINT.search(obs)
        if hint is not None and hint[2] == "higher":
            self.low = max(self.low, int(hint[1]) + 1)
        elif hint is not None:
            self.high = min(self.high, int(hint[1]) - 1)
        if self.noise and self.rng.random() < self.noise:
            return self.answer(self.rng.randint(self.first, self.last))
        return self.answer((self.low + self.high) // 2)
