"""Doors: the number of each door is told once, long before the door."""

from __future__ import annotations

from typing import Any

from gem_memory.players import PLAYERS
from gem_memory.walk import GO, Stop, Walk


class Doors(Walk):
    """Open doors whose numbers were told once, many stops before.

    In the first third of the stops a sign tells the number of each door; in the last third are the
    doors, in another order. Between them, and beside them, is nothing.

    Args:
        doors: how many, at most 10.
        numbers: a door's number is from 1 to this one.
        max_turns: stops of the walk, at least four for a door.
        **options: see `gem_core.envs.games.game.Game`.
    """

    players = PLAYERS

    def __init__(self, *, doors: int = 2, numbers: int = 9, max_turns: int = 24, **options: Any):
        super().__init__(subjects=doors, numbers=numbers, max_turns=max_turns, **options)
        self.doors = doors

    def _draw(self) -> list[Stop]:
        names = self.rng.sample(self.names, self.doors)
        number = {name: self.rng.randint(1, self.numbers) for name in names}
        third = max(self.turns // 3, self.doors + 1)
        told = [Stop("tells", name, number[name]) for name in names]
        signs = self._scatter(told, 1, third)
        self.rng.shuffle(names)
        asked = [Stop("asks", name, number[name]) for name in names]
        doors = self._scatter(asked, self.turns - third, self.turns)
        return signs[:-third] + doors[-third:]

    def _show(self, stop: Stop) -> str:
        if stop.kind == "tells":
            return f"A sign: door {stop.subject} opens with {stop.number}."
        if stop.kind == "asks":
            return f"Door {stop.subject} asks for its number."
        return "There is nothing."

    def _rules(self) -> str:
        return (
            f"You walk past {self.turns} stops. At some, a sign tells the number of a door, from 1 "
            f"to {self.numbers}; later each door asks for its number. Nothing is told twice.\n"
            f"At a door, answer with its number; at any other stop, with {GO}. You win if all "
            f"{self.doors} doors open. Each answer leads to the next stop.\n"
            f"Write your answer like this: {self._answer(self._example())}"
        )
