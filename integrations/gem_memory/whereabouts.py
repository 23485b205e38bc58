"""Whereabouts: parcels are moved from box to box, and only the last box counts."""

from __future__ import annotations

from typing import Any

from gem_memory.players import PLAYERS
from gem_memory.walk import GO, Stop, Walk


class Whereabouts(Walk):
    """Say in which boxes parcels are that were moved many stops before.

    At first each parcel is put into a box; then, at stop after stop, one of them is moved to
    another. A quarter of the stops is plain, and at the last stops each parcel is asked for, in
    another order. What was told first is wrong where the parcel was moved since.

    Args:
        parcels: how many, at most 10.
        numbers: boxes are numbered from 1 to this one.
        max_turns: stops of the walk, at least four for a parcel.
        **options: see `gem_core.envs.games.game.Game`.
    """

    players = PLAYERS

    def __init__(self, *, parcels: int = 3, numbers: int = 9, max_turns: int = 24, **options: Any):
        super().__init__(subjects=parcels, numbers=numbers, max_turns=max_turns, **options)
        self.parcels = parcels

    def _draw(self) -> list[Stop]:
        parcels = self.rng.sample(self.names, self.parcels)
        box = {parcel: self.rng.randint(1, self.numbers) for parcel in parcels}
        stops = [Stop("plain")]
        stops += [Stop("tells", parcel, box[parcel]) for parcel in parcels]
        pause = self.turns // 4
        while len(stops) < self.turns - pause - self.parcels:
            parcel = self.rng.choice(parcels)
            box[parcel] += self.rng.randint(1, self.numbers - 1)  # another box
            box[parcel] = (box[parcel] - 1) % self.numbers + 1
            stops.append(Stop("tells", parcel, box[parcel]))
        stops += [Stop("plain")] * pause
        self.rng.shuffle(parcels)
        return stops + [Stop("asks", parcel, box[parcel]) for parcel in parcels]

    def _show(self, stop: Stop) -> str:
        if stop.kind == "tells":
            return f"Parcel {stop.subject} is put into box {stop.number}."
        if stop.kind == "asks":
            return f"Which box holds parcel {stop.subject}?"
        return "Nothing is moved."

    def _rules(self) -> str:
        return (
            f"You walk past {self.turns} stops. At some, a parcel is put into one of "
            f"{self.numbers} boxes, out of the one that it was in; later you are asked which box "
            "holds it.\n"
            "Where you are asked, answer with the number of the box; at any other stop, with "
            f"{GO}. You win if you know the boxes of all {self.parcels} parcels. Each answer leads "
            "to the next stop.\n"
            f"Write your answer like this: {self._answer(self._example())}"
        )
