"""Mastermind: find a hidden code of numbers from black and white pegs."""

from __future__ import annotations

from functools import cache
from operator import eq
from typing import TYPE_CHECKING

from gem_core.envs.games.game import Game
from gem_core.envs.games.numbers import parse_int

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult

_PROMPT = "Enter your next guess."
_SIZES = ((2, 4, 10), (4, 6, 20), (4, 8, 30))
"""(code length, how many numbers, turns) from which the random variant draws."""


class Mastermind(Game):
    """Find a code of ``code_length`` numbers from 1 to ``num_numbers``.

    A guess earns ``1 / code_length`` for each black peg beyond the best guess so far, so that a
    solved code has earned 1. Numbers may be separated by spaces or commas, and those up to 9 also
    by nothing; with ``compat="gem-0.1.0"`` only by spaces.

    Args:
        code_length: length of the code; ``None`` draws length, numbers and turns at each reset.
        num_numbers: the largest number.
        duplicate_numbers: whether a number may be in the code more than once.
        max_turns: number of guesses.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _gem_form = r"(\d+(?:\s+\d+)*)"
    _state_fields = (*Game._state_fields, "_code", "_numbers", "_guessed", "_best")
    _code: list[str]
    _numbers: int
    _guessed: dict[str, None]
    _best: int

    def __init__(
        self,
        *,
        code_length: int | None = 4,
        num_numbers: int | None = 6,
        duplicate_numbers: bool = False,
        max_turns: int | None = 20,
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, **options)
        self.code_length = code_length
        self.num_numbers = num_numbers
        self.duplicate_numbers = duplicate_numbers
        self._varies = code_length is None or num_numbers is None or max_turns is None
        if code_length is not None and num_numbers is not None:
            if code_length < 1 or num_numbers < 1:
                raise ValueError("code_length and num_numbers must be at least 1.")
            if code_length > num_numbers and not duplicate_numbers:
                raise ValueError(
                    f"A code of {code_length} different numbers needs num_numbers >= {code_length}."
                )

    def _start(self) -> None:
        length = self.code_length
        numbers = self.num_numbers
        if length is None or numbers is None or self.max_turns is None:
            length, numbers, self._budget = self.rng.choice(_SIZES)
        self._numbers = numbers
        self._code = self._draw(self.rng, length, self.duplicate_numbers)
        self._guessed = {}
        self._best = 0
        self._restored()

    def _consistent(self) -> bool:
        return (
            super()._consistent()
            and self._numbers in (self.num_numbers, *[numbers for _, numbers, _ in _SIZES])
            and len(self._code) > 0
            and all(n.isdecimal() and 1 <= int(n) <= self._numbers for n in self._code)
            and 0 <= self._best <= len(self._code)
        )

    def _restored(self) -> None:
        self._symbols = _symbols(self._numbers)

    def _draw(self, rng: Random, length: int, duplicates: bool) -> list[str]:
        random = rng.random
        pool = list(range(1, self._numbers + 1))
        if duplicates:
            return [str(pool[int(random() * len(pool))]) for _ in range(length)]
        return [str(pool.pop(int(random() * len(pool)))) for _ in range(length)]

    def _rules(self) -> str:
        length = len(self._code)
        return (
            "You are playing Mastermind.\n"
            f"Find a secret code of {length} numbers within {self._budget} turns. Each is from 1 "
            f"to {self._numbers} (both included); "
            f"a number {'may' if self.duplicate_numbers else 'does not'} occur more than once in "
            "the code.\n"
            "After each guess you are told the black pegs (right number, right place) and the "
            "white pegs (right number, wrong place). A guess made before uses up a turn without "
            "pegs.\n"
            f"Write your guess like this: {self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        guess = answer.split()
        code = self._code
        if len(guess) != len(code) or not self._symbols.issuperset(guess):
            read = self._read(answer)
            if read is None:
                return self._malformed("it is not a list of whole numbers")
            if len(read) != len(code):
                return self._invalid(
                    f"The code has {len(code)} numbers; the guess has {len(read)}."
                )
            if not self._symbols.issuperset(read):
                return self._invalid(f"All numbers must be from 1 to {self._numbers}.")
            guess = read
        text = " ".join(guess)
        guessed = self._guessed
        if text in guessed:
            return self._invalid(f"You have guessed {text} before.")
        guessed[text] = None
        return self._judge(guess, text)

    def _judge(self, guess: list[str], text: str) -> StepResult:
        code = self._code
        length = len(code)
        black = sum(map(eq, guess, code))
        common = 0
        rest = code[:]
        for number in guess:
            if number in rest:
                rest.remove(number)
                common += 1
        reward = self._reward["step"]
        if black > self._best:
            reward += (black - self._best) / length * self._reward["success"]
            self._best = black
        if black == length:
            return self._win(f"Turn {self._turn}: {text} is the code. You have won.", reward)
        obs = f"Turn {self._turn}: you guessed {text}. Black pegs: {black}, white pegs: "
        if self._turn < self._budget:
            return f"{obs}{common - black}.", reward, False, False, {"suffix": _PROMPT}
        return self._out_of_turns(f"{obs}{common - black}.", reward, {})

    def _read(self, answer: str) -> list[str] | None:
        """Read numbers in the less usual notations; ``None`` if they are not numbers."""
        strict = self.compat is not None
        tokens = answer.split() if strict else answer.replace(",", " ").split()
        length = len(self._code)
        if len(tokens) == 1 and length > 1 and self._numbers <= 9 and not strict:
            tokens = list(tokens[0]) if len(tokens[0]) == length else tokens
        if not tokens:
            return None
        numbers = [parse_int(t) for t in tokens]
        return None if None in numbers else [str(n) for n in numbers]

    def _board(self) -> str:
        return _PROMPT

    def _example(self) -> str:
        return " ".join(str(i % self._numbers + 1) for i in reversed(range(len(self._code))))

    def random_action(self, rng: Random) -> str:
        """Return a code that could be the secret one, drawn from ``rng``."""
        return self._answer(" ".join(self._draw(rng, len(self._code), self.duplicate_numbers)))


@cache
def _symbols(numbers: int) -> frozenset[str]:
    return frozenset(map(str, range(1, numbers + 1)))
