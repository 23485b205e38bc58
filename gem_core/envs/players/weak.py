"""Weak players: legal moves with a strategy that leaves room; see `registry.WEAK`.

Each of them reads only what the observation shows, as the experts do. None plays a move because it
leads to the goal, so that a policy that imitates one, played greedily, is no expert either.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from itertools import product
from random import Random
from typing import Any

from gem_core.env.interface import Env
from gem_core.envs.data.words import upper_words
from gem_core.envs.players.fifteen_puzzle import SlideSearch
from gem_core.envs.players.guess_the_number import BinarySearch
from gem_core.envs.players.hangman import TellingLetter
from gem_core.envs.players.mastermind import ConsistentGuess
from gem_core.envs.players.player import Peek, Player
from gem_core.envs.players.sudoku import read_board
from gem_core.envs.players.tower_of_hanoi import PEG
from gem_core.envs.players.wordle import MARKS, ConsistentWord

_HANOI_MOVE = re.compile(r"moved from ([ABC]) to ([ABC])")
_STEP = re.compile(r"moved (up|down|left|right)")
_CODE = re.compile(r"you guessed ([\d ]+)\.")
_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
_LETTERS = "ETAOINSHRDLCUMWFGYPBVKJXQZ"
"""The letters in the usual order of their frequency in English texts."""


class WithinHints(BinarySearch):
    """Guesses any number of the range that the hints leave, with equal probability."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Narrow the range by the hint, then draw from it."""
        super().act(obs, info)
        return self.answer(self.rng.randint(self.low, self.high))


class AnyMove(Player):
    """Draws one of the possible moves; the one back only if there is no other."""

    @abstractmethod
    def possible_moves(self, board: str) -> list[str]:
        """Return what may be played on a shown board, in a fixed order; at least one move."""

    def way_back(self, obs: str) -> str | None:
        """Return the move that takes the last one back; ``None``: there is none."""
        last = _STEP.search(obs)
        return _OPPOSITE[last[1]] if last else None

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Draw a move."""
        moves = self.possible_moves(info["suffix"])
        back = self.way_back(obs)
        return self.answer(self.rng.choice([m for m in moves if m != back] or moves))


class LegalDisk(AnyMove):
    """Moves a disk that may be moved, and not back to where it was just taken from."""

    def possible_moves(self, board: str) -> list[str]:
        """Compare the top disks of the pegs: A to B, A to C, B to A, ..."""
        pegs = [text.replace("-", "").split() for text in PEG.findall(board)]
        if len(pegs) != 3:
            raise self.unreadable(board)
        tops = {name: int(peg[-1]) if peg else 99 for name, peg in zip("ABC", pegs, strict=True)}
        return [f"{a} {b}" for a, b in product(tops, tops) if tops[a] < tops[b]]

    def way_back(self, obs: str) -> str | None:
        """See `AnyMove`."""
        last = _HANOI_MOVE.search(obs)
        return f"{last[2]} {last[1]}" if last else None


class LegalSlide(AnyMove, SlideSearch):
    """Slides a tile next to the space, and not the one back that was just moved."""

    def possible_moves(self, board: str) -> list[str]:
        """Look around the space: up, down, left, right."""
        return self.possible(self.read(board))


class Wanderer(AnyMove):
    """Walks to a cell of a Sokoban room that is no wall, not back; boxes are pushed by chance."""

    def possible_moves(self, board: str) -> list[str]:
        """Look around the player, whatever stands there: up, down, left, right."""
        rows = [line.split(" ") for line in board.splitlines()[:-1]]
        places = [
            (r, c) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell in "PS"
        ]
        if len(places) != 1:
            raise self.unreadable(board)
        ((r, c),) = places
        around = {"up": (r - 1, c), "down": (r + 1, c), "left": (r, c - 1), "right": (r, c + 1)}
        return [name for name, (s, d) in around.items() if rows[s][d] != "#"] or ["up"]


class NewCode(ConsistentGuess):
    """Guesses any code that was not guessed before; it does not read the pegs."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Drop the latest guess, then draw a code."""
        guessed = _CODE.search(obs)
        if guessed is not None:
            last = tuple(map(int, guessed[1].split()))
            self.codes = [code for code in self.codes if code != last] or self.codes
        return self.answer(" ".join(map(str, self.rng.choice(self.codes))))


class HiddenCell(AnyMove):
    """Reveals any hidden cell of a Minesweeper board, whatever the numbers say."""

    def possible_moves(self, board: str) -> list[str]:
        """List the hidden cells, row by row; flags are taken away if there is nothing else."""
        rows = [line.split()[1:] for line in board.splitlines()[1:-1]]
        cells = [(r, c, cell) for r, row in enumerate(rows) for c, cell in enumerate(row)]
        for sign, verb in ((".", "reveal"), ("F", "flag")):
            if moves := [f"{verb} {r} {c}" for r, c, cell in cells if cell == sign]:
                return moves
        raise self.unreadable(board)


class CommonLetter(TellingLetter):
    """Guesses a new letter, the commoner in English the likelier; it knows no list of words."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Drop the letters that were played, then draw one."""
        self._read_guess(obs)
        left = [letter for letter in _LETTERS if letter not in self.guessed]
        shown = set(info["suffix"].splitlines()[0])
        left = [letter for letter in left if letter not in shown] or list(_LETTERS)
        weights = [1.0 / (1 + _LETTERS.index(letter)) for letter in left]
        return self.answer(self.rng.choices(left, weights)[0])


class KeepsGreen(ConsistentWord):
    """Guesses any word that has the green letters in their places; it does not read the others."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Drop the latest guess and the words without its green letters, then draw a word."""
        feedback = MARKS.search(obs)
        if feedback is not None:
            last = feedback[1].replace(" ", "")
            green = [i for i, mark in enumerate(feedback[2].split()) if mark == "G"]
            self.candidates = [
                word
                for word in self.candidates
                if word != last and all(word[i] == last[i] for i in green)
            ] or list(upper_words(self.words, len(last)))
        return self.answer(self.rng.choice(self.candidates))


class EmptyCell(Player):
    """Enters any number into any empty cell of a Sudoku."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Draw an empty cell and a number."""
        cells = read_board(info["suffix"])
        side = int(len(cells) ** 0.5)
        row, col = divmod(self.rng.choice([i for i, n in enumerate(cells) if not n]), side)
        return self.answer(f"{row + 1} {col + 1} {self.rng.randint(1, side)}")


class AnotherAnswer(Peek):
    """Answers a question with the right answer to another one: the right range, no skill.

    It draws the other item from the environment, and puts the environment back as it was.
    """

    def __init__(self, rng: Random, env: Env):
        super().__init__(rng, env)
        self.other = ""

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Draw another item and keep its answer."""
        inner: Any = self.env.unwrapped
        before = inner.get_state()
        inner.reset(seed=self.rng.randrange(2**31))
        self.other = inner.peek()
        inner.set_state(before)

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Return the answer to the other question."""
        return self.other
