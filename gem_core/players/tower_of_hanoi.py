"""Tower of Hanoi by the shortest way."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from gem_core.players.player import Player

_PEG = re.compile(r"^[ABC]: ([\d -]+)$", re.MULTILINE)


class ShortestWay(Player):
    """Makes the first move of a shortest way from any position to all disks on C.

    Args:
        rng: The player's own generator.
        answer_format: How actions are written.
    """

    def __init__(self, rng: Random, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Nothing to remember: the position says it all."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Find the smallest disk that stands in the way of a larger one, or of the goal."""
        pegs = [
            list(map(int, peg.replace("-", "").split())) for peg in _PEG.findall(info["suffix"])
        ]
        if len(pegs) != 3:
            raise self.unreadable(info["suffix"])
        where = {disk: peg for peg, disks in enumerate(pegs) for disk in disks}
        goal, move = 2, (0, 2)
        for disk in sorted(where, reverse=True):
            at = where[disk]
            if at != goal:
                # Every smaller disk has to wait on the third peg while this one moves.
                move, goal = (at, goal), 3 - at - goal
        return self.answer(f"{'ABC'[move[0]]} {'ABC'[move[1]]}")
