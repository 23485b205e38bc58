"""Experts for the two-player games and the returns desk."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from gem_core.envs.multi_agent.games import Nim, TicTacToe
from gem_core.players.player import Player

_ORDER = re.compile(r"R\d{4}")
_ITEM = re.compile(r"(?:The|about the) ([a-z ]+)\.")
_WISH = re.compile(r"\b(refund|exchange)\b")


class PerfectPlayer(Player):
    """Reads the position from the board and plays a best move.

    Args:
        rng: The player's own generator.
        answer_format: How actions are written.
    """

    def __init__(self, rng: Random, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Nothing to remember: the board says it all."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Set up the game as shown and ask for a best move."""
        board = info["suffix"]
        if board.startswith("Heap"):
            nim = Nim()
            nim._heaps = [int(line.split(": ")[1]) for line in board.splitlines()]
            return self.answer(nim.perfect_move(self.rng))
        game = TicTacToe()
        game._squares = "".join(s if s in "XO" else "." for s in board.split())
        return self.answer(game.perfect_move(self.rng))


class AsksForEverything(Player):
    """Asks for order, item and wish in turn, then files.

    Args:
        rng: The player's own generator.
        answer_format: How actions are written.
    """

    def __init__(self, rng: Random, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Begin with no facts."""
        self.heard: list[str] = []

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Ask the next question, or file what was heard."""
        patterns = (_ORDER, _ITEM, _WISH)
        if self.heard or ("Customer:" in obs and "returns desk" not in obs):
            found = patterns[len(self.heard)].search(obs)
            if found is None:
                raise self.unreadable(obs)
            self.heard.append(found[found.re.groups])
        questions = ("What is the order?", "Which item?", "A refund or an exchange?")
        if len(self.heard) < len(questions):
            return self.answer(f"say[{questions[len(self.heard)]}]")
        return self.answer(f"file[{'; '.join(self.heard)}]")
