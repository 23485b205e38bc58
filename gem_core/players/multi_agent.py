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
        rng: the player's own generator.
        answer_format: the format of actions.
    """

    def __init__(self, rng: Random, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Do nothing: the board shows the whole state."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Set up the shown position and play a best move."""
        board = info["suffix"]
        if board.startswith("Heap"):
            nim = Nim()
            nim._heaps = [int(line.split(": ")[1]) for line in board.splitlines()]
            return self.answer(nim.perfect_move(self.rng))
        game = TicTacToe()
        game._squares = "".join(s if s in "XO" else "." for s in board.split())
        return self.answer(game.perfect_move(self.rng))


class AsksForEverything(Player):
    """Asks for the order, the item and the wish, then files the return.

    Args:
        rng: the player's own generator.
        answer_format: the format of actions.
    """

    def __init__(self, rng: Random, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Begin without facts."""
        self.heard: list[str] = []

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Ask the next question, or file the return when all is known."""
        patterns = (_ORDER, _ITEM, _WISH)
        if self.heard or ("Customer:" in obs and "returns desk" not in obs):
            fact = patterns[len(self.heard)].search(obs)
            if fact is None:
                raise self.unreadable(obs)
            self.heard.append(fact[fact.re.groups])
        questions = ("What is the order?", "Which item?", "A refund or an exchange?")
        if len(self.heard) < len(questions):
            return self.answer(f"say[{questions[len(self.heard)]}]")
        return self.answer(f"file[{'; '.join(self.heard)}]")
