"""An expert for Tower of Hanoi: the shortest solution."""

from __future__ import annotations

import re
from typing import Any

from gem_core.envs.players.player import Player

PEG = re.compile(r"^[ABC]: ([\d -]+)$", re.MULTILINE)
_GOAL = re.compile(r"^(\d): [ABC] ([ABC])$", re.MULTILINE)


class ShortestWay(Player):
    """Plays the first move of a shortest solution from any position."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Find the smallest disk that blocks a larger one, or the goal."""
        pegs = [list(map(int, peg.replace("-", "").split())) for peg in PEG.findall(info["suffix"])]
        if len(pegs) != 3:
            raise self.unreadable(info["suffix"])
        where = {disk: peg for peg, disks in enumerate(pegs) for disk in disks}
        goals = {int(disk): "ABC".index(peg) for disk, peg in _GOAL.findall(info["suffix"])}
        waiting: int | None = None
        move = (0, 2)
        for disk in sorted(where, reverse=True):
            at = where[disk]
            goal = goals.get(disk, 2) if waiting is None else waiting
            if at != goal:
                # Every smaller disk has to wait on the third peg while this one moves.
                move = (at, goal)
                waiting = 3 - at - goal
        return self.answer(f"{'ABC'[move[0]]} {'ABC'[move[1]]}")
