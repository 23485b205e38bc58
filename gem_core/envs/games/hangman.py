"""Hangman: find a hidden word by guessing letters, or the whole word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.envs.data.words import language, upper_words
from gem_core.envs.games.game import Game

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SIZES = ((3, 10), (5, 15), (7, 20))
"""(word length, turns) from which the random variant draws."""


class Hangman(Game):
    """Guess letters of a word, or the whole word.

    Every revealed letter earns ``0.5 / word_length``. The end of the game, by the last letter or by
    the word, earns 0.5 and the reward of the letters that are still hidden, so that a found word
    has earned 1. With ``compat="gem-0.1.0"`` revealing all letters does not end the game: the word
    has to be given.

    Args:
        word_length: length of the word; ``None`` draws length and turns at each reset.
        max_turns: number of guesses, including right ones.
        words: list of the word: ``"basic"`` (157, 600 and 675 words of 3, 5 and 7 letters),
            ``"basic850"`` (65, 152, 119; 850 in all, as in GEM), ``"english"`` (478, 3,454, 6,716)
            or ``"syllables"`` (405 of 3 and 2,025 of 4, by a rule); or the words themselves.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _gem_form = "([a-zA-Z]+)"
    _gem_ignores_case = True  # with it, four letters that are not ASCII match too
    _state_fields = (*Game._state_fields, "_word", "_shown", "_guessed")
    _word: str
    _shown: str  # the word with "_" for hidden letters
    _guessed: str

    def __init__(
        self,
        *,
        word_length: int | None = 5,
        max_turns: int | None = 15,
        words: str | list[str] = "basic",
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, **options)
        self.word_length = word_length
        self.words = words
        self._varies = word_length is None or max_turns is None
        upper_words(words, word_length)

    def _start(self) -> None:
        length = self.word_length
        if length is None or self.max_turns is None:
            length, self._budget = self.rng.choice(_SIZES)
        candidates = upper_words(self.words, length)
        self._word = candidates[int(self.rng.random() * len(candidates))]
        self._shown = "_" * length
        self._guessed = ""

    def _consistent(self) -> bool:
        word = self._word
        return (
            super()._consistent()
            and 0 < len(word) == len(self._shown)
            and all(s in ("_", w) for w, s in zip(word, self._shown, strict=True))
        )

    def _rules(self) -> str:
        kind = language(self.words)
        article = "an" if kind == "English" else "a"
        goal = "Give the whole word" if self.compat else "Reveal all letters, or give the word,"
        return (
            "You are playing Hangman.\n"
            f"Find {article} {kind} word of {len(self._word)} letters. A letter is shown as '_' "
            f"until it is revealed. {goal} within {self._budget} turns; every guess is a turn.\n"
            "A letter that is in the word is revealed in all its places. A letter guessed before, "
            "or a word of another length, uses up a turn.\n"
            f"Write a guess of one letter like this: {self._answer('E')}, and of the word like "
            f"this: {self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        guess = answer.upper()
        if not self.compat and not (guess.isalpha() and guess.isascii()):
            return self._malformed("it is not a letter or a word of the letters A to Z")
        if len(guess) == 1:
            return self._letter(guess)
        word = self._word
        turn = self._turn
        if guess == word:
            hidden = self._shown.count("_")
            reward = self._reward["success"] * (0.5 + 0.5 * hidden / len(word))
            self._shown = word
            obs = f"Turn {turn}: {word} is the word. You have won."
            return self._win(obs, self._reward["step"] + reward)
        if len(guess) != len(word):
            return self._invalid(f"The word has {len(word)} letters, your guess has {len(guess)}.")
        return self._continue(f"Turn {turn}: {guess} is not the word.", self._reward["step"])

    def _letter(self, letter: str) -> StepResult:
        word = self._word
        turn = self._turn
        if letter in self._guessed:
            return self._invalid(f"You have guessed {letter} before.")
        self._guessed += letter
        reward = self._reward["step"]
        if letter not in word:
            return self._continue(f"Turn {turn}: {letter} is not in the word.", reward)
        shown = "".join([w if w == letter else s for w, s in zip(word, self._shown, strict=True)])
        self._shown = shown
        reward += self._reward["success"] * 0.5 * word.count(letter) / len(word)
        obs = f"Turn {turn}: {letter} is in the word."
        if shown == word and not self.compat:
            reward += self._reward["success"] * 0.5
            return self._win(f"{obs} All letters are revealed. You have won.", reward)
        return self._continue(obs, reward)

    def _board(self) -> str:
        return f"{' '.join(self._shown)}\nEnter your next guess."

    def _example(self) -> str:
        return "TRACEABILITY"[: len(self._word)].ljust(len(self._word), "S")

    def random_action(self, rng: Random) -> str:
        """Return a letter or, equally often, a word of the right length, drawn from ``rng``."""
        random = rng.random
        if random() < 0.5:
            return self._answer(_LETTERS[int(random() * 26)])
        candidates = upper_words(self.words, len(self._word))
        return self._answer(candidates[int(random() * len(candidates))])
