"""Experts for the two-player games and the returns desk."""

from __future__ import annotations

import re
from typing import Any

from gem_core.envs.multi_agent.games import Nim, TicTacToe
from gem_core.envs.players.player import Player

_FACTS = {
    "What is the order?": re.compile(r"^Customer: .*\b(R\d{4})\."),
    "Which item?": re.compile(r"^Customer: (?:The|It is about the) ([a-z ]+)\.$"),
    "A refund or an exchange?": re.compile(r"^Customer: .*\b(refund|exchange)\b"),
}
"""Question -> the answer to it, in the order of the return form."""


class PerfectPlayer(Player):
    """Reads the position from the board and plays a best move."""

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
    """Asks for the order, the item and the wish, then files the return."""

    version = 1  # 1: reads what was played, instead of its own actions

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Begin without facts."""
        self.facts: dict[str, str] = {}

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Ask for the first fact that is unknown, or file the return when all are known."""
        for question, pattern in _FACTS.items():
            told = pattern.search(obs)
            if told is not None:
                self.facts[question] = told[1]
        for question in _FACTS:
            if question not in self.facts:
                return self.answer(f"say[{question}]")
        return self.answer(f"file[{'; '.join(self.facts[question] for question in _FACTS)}]")
