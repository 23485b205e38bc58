"""Wordle: find a hidden word from the letters that guesses share with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.envs.data.words import language, upper_words
from gem_core.envs.games.game import Game

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult

_PROMPT = "Enter your next guess."


class Wordle(Game):
    """Find a word of ``word_length`` letters; any letters may be guessed, words or not.

    Every place that is right for the first time earns ``0.5 / word_length``, the word itself 0.5,
    so that a found word has earned 1.

    Args:
        word_length: length of the word; ``None`` draws 3, 4 or 5 at each reset.
        max_turns: number of guesses; ``None``: 5 per letter.
        words: list of the word: ``"basic"`` (157, 600 and 675 words of 3, 5 and 7 letters),
            ``"basic850"`` (65, 152, 119; 850 in all, as in GEM), ``"english"`` (478, 3,454, 6,716)
            or ``"syllables"`` (405 of 3 and 2,025 of 4, by a rule); or the words themselves.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _gem_form = r"([a-zA-Z]+(?:\s+[a-zA-Z]+)*)"
    _state_fields = (*Game._state_fields, "_word", "_guessed", "_found")
    _word: str
    _guessed: dict[str, None]
    _found: list[int]  # the places that were right before

    def __init__(
        self,
        *,
        word_length: int | None = 5,
        max_turns: int | None = 25,
        words: str | list[str] = "basic",
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, **options)
        self.word_length = word_length
        self.words = words
        self._varies = word_length is None or max_turns is None
        upper_words(words, word_length)

    def _start(self) -> None:
        random = self.rng.random
        length = self.word_length
        if length is None:
            length = 3 + int(random() * 3)
        if self.max_turns is None:
            self._budget = 5 * length
        candidates = upper_words(self.words, length)
        self._word = candidates[int(random() * len(candidates))]
        self._guessed = {}
        self._found = []

    def _consistent(self) -> bool:
        word = self._word
        return (
            super()._consistent()
            and word in upper_words(self.words, len(word))
            and len(set(self._found)) == len(self._found)
            and all(0 <= place < len(word) for place in self._found)
        )

    def _rules(self) -> str:
        length = len(self._word)
        kind = language(self.words)
        return (
            "You are playing Wordle.\n"
            f"Find the secret {kind} word of {length} letters within {self._budget} turns. After "
            "each guess, every letter of the guess is marked:\n"
            "G (green): the word has this letter in this place.\n"
            "Y (yellow): the word has this letter in another place.\n"
            "X: the word does not have this letter (or has no more of it).\n"
            f"A guess may be any {length} letters. One of another length, or one made before, uses "
            "up a turn without marks.\n"
            f"Write your guess like this: {self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        guess = answer.upper()
        word = self._word
        if self.compat:
            return self._gem_guess(guess.replace(" ", ""))
        if len(guess) != len(word) or not guess.isalpha() or not guess.isascii():
            guess = "".join(guess[:200].split())
            if not guess.isalpha() or not guess.isascii():
                return self._malformed("it is not a word of the letters A to Z")
            if len(guess) != len(word) or len(answer) > 200:
                return self._invalid(f"Your guess must have {len(word)} letters.")
        return self._judge(guess)

    def _gem_guess(self, guess: str) -> StepResult:
        """Judge a guess as GEM 0.1.0 does: a tab or a line break inside it counts as a letter."""
        if len(guess) != len(self._word):
            return self._invalid(f"Your guess must have {len(self._word)} letters.")
        return self._judge(guess)

    def _judge(self, guess: str) -> StepResult:
        word = self._word
        if guess in self._guessed:
            return self._invalid(f"You have guessed {guess} before.")
        self._guessed[guess] = None
        reward = self._reward["step"]
        if guess == word:
            missing = len(word) - len(self._found)
            reward += self._reward["success"] * (0.5 + 0.5 * missing / len(word))
            return self._win(f"Turn {self._turn}: {guess} is the word. You have won.", reward)
        shown = marks(word, guess)
        if "G" in shown:
            known = self._found
            fresh = [i for i, mark in enumerate(shown) if mark == "G" and i not in known]
            known += fresh
            reward += self._reward["success"] * 0.5 * len(fresh) / len(word)
        obs = f"Turn {self._turn}: you guessed\n{' '.join(guess)}\n{' '.join(shown)}"
        if self._turn < self._budget:
            return obs, reward, False, False, {"suffix": _PROMPT}
        return self._out_of_turns(f"{obs}\n", reward, {})

    def _board(self) -> str:
        return _PROMPT

    def _example(self) -> str:
        return "TRACEABILITY"[: len(self._word)].ljust(len(self._word), "S")

    def random_action(self, rng: Random) -> str:
        """Return a word of the right length from the word list, drawn from ``rng``."""
        candidates = upper_words(self.words, len(self._word))
        return self._answer(candidates[int(rng.random() * len(candidates))])


def marks(word: str, guess: str) -> list[str]:
    """Return the mark of each letter of a guess; each letter of the word is counted once.

    >>> "".join(marks("HELLO", "LLAMA"))
    'YYXXX'
    """
    rest = [letter for letter, other in zip(word, guess, strict=True) if letter != other]
    shown = []
    for letter, other in zip(word, guess, strict=True):
        if letter == other:
            shown.append("G")
        elif other in rest:
            rest.remove(other)
            shown.append("Y")
        else:
            shown.append("X")
    return shown
