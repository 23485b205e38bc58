"""Guess the Number: find a hidden number from the hints "higher" and "lower"."""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING

from gem_core.envs.games.game import Game
from gem_core.envs.games.numbers import parse_int

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult

_PROMPT = "Enter your next guess."
_SHOWN = 20
"""Longest number that is repeated to the player."""


class GuessTheNumber(Game):
    """Guess a number between ``min_number`` and ``max_number``.

    The reward is 1 for the right number. When the turns are used up it is
    ``1 - distance / (max - min)`` of the last guess, if that was a valid new number. With
    ``compat="gem-0.1.0"`` a repeated number is rewarded too, and guessing 0 is a format error.

    Args:
        min_number: smallest possible number; ``None`` draws both bounds at each reset.
        max_number: largest possible number.
        max_turns: number of guesses; ``None``: enough for binary search.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _gem_form = r"(\d+)"
    _state_fields = (*Game._state_fields, "_low", "_high", "_target", "_guessed", "_last")
    _low: int
    _high: int
    _target: int
    _guessed: list[int]
    _last: int

    def __init__(
        self,
        *,
        min_number: int | None = 1,
        max_number: int | None = 50,
        max_turns: int | None = 7,
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, **options)
        if (min_number is None) != (max_number is None):
            raise ValueError("Give both min_number and max_number, or None for both.")
        if min_number is not None and max_number is not None and min_number >= max_number:
            raise ValueError(
                f"min_number ({min_number}) must be smaller than max_number ({max_number})."
            )
        self.min_number = min_number
        self.max_number = max_number
        self._varies = max_turns is None or min_number is None

    def _start(self) -> None:
        low = self.min_number
        high = self.max_number
        if low is None or high is None:
            low = self.rng.randint(1, 10)
            high = self.rng.randint(low + 5, low + 50)
        if self.max_turns is None:
            self._budget = ceil(sqrt(high - low)) + 1
        self._low = low
        self._high = high
        self._target = low + int(self.rng.random() * (high - low + 1))
        self._guessed = []
        self._last = low - 1

    def _consistent(self) -> bool:
        return super()._consistent() and self._low <= self._target <= self._high > self._low

    def _rules(self) -> str:
        return (
            "You are playing Guess The Number.\n"
            f"A number from {self._low} to {self._high} (both included) has been chosen. "
            f"Find it within {self._budget} turns.\n"
            "After each guess you are told whether the number is higher or lower than your guess. "
            "A guess outside the range, or one made before, uses up a turn without a hint.\n"
            f"Write your guess like this: {self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        guess = parse_int(answer)
        if guess is None:
            return self._malformed("it is not a whole number")
        if guess == 0 and self.compat:
            return self._malformed("0 is not a guess")
        self._last = guess
        turn = self._turn
        if guess == self._target:
            reward = self._reward["success"]
            return self._win(f"Turn {turn}: {guess} is the number. You have won.", reward)
        if not self._low <= guess <= self._high:
            number = answer if len(answer) <= _SHOWN else "Your number"
            return self._invalid(f"{number} is not between {self._low} and {self._high}.")
        guessed = self._guessed
        if guess in guessed:
            return self._invalid(f"You have guessed {guess} before.")
        guessed.append(guess)
        hint = "higher" if guess < self._target else "lower"
        obs = f"Turn {turn}: you guessed {guess}. The number is {hint}."
        if turn < self._budget:
            return obs, self._reward["step"], False, False, {"suffix": _PROMPT}
        return self._out_of_turns(obs, self._reward["step"], {})

    def _limit_reward(self, reward: float, valid: bool) -> float:
        paid = valid or (self.compat is not None and self._low <= self._last <= self._high)
        if not paid:
            return reward
        distance = abs(self._last - self._target)
        return self._reward["success"] * (1 - distance / (self._high - self._low))

    def _board(self) -> str:
        return _PROMPT

    def _example(self) -> str:
        return str(self._low + (self._high - self._low) // 3)

    def random_action(self, rng: Random) -> str:
        """Return a number in the range, drawn from ``rng``."""
        return self._answer(str(rng.randint(self._low, self._high)))
