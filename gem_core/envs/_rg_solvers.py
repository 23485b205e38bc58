"""Solvers for the generators of reasoning-gym that provide no answer; for experts and tests."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

_SIDE = 6
"""Side of the board of rush_hour."""
_EXIT_ROW = 2

Place = tuple[float, float]
Car = tuple[int, int, int]
"""First cell, length and stride (1 along a row, 6 along a column) of a car."""


def solve(name: str, metadata: dict[str, Any]) -> str | None:
    """Return a right answer to an item, or ``None`` if the generator is not known here."""
    solver = _SOLVERS.get(name)
    return None if solver is None else solver(metadata)


def boxnet(metadata: dict[str, Any]) -> str:
    """Move one box after the other to a target of its colour, one move per step."""
    boxes: dict[str, list[Place]] = {}
    targets: dict[str, list[Place]] = {}
    for place, things in metadata["initial_state"].items():
        row, col = map(float, place.split("_"))
        for thing in things:
            kind, _, colour = thing.partition("_")
            places_by_colour = boxes if kind == "box" else targets
            places_by_colour.setdefault(colour, []).append((row, col))
    steps = []
    for colour, places in boxes.items():
        for place, target in zip(places, targets[colour], strict=True):
            for here, there in _way(place, target):
                steps.append({_agent(here): f"move(box_{colour}, square{list(there)})"})
            steps.append({_agent(target): f"move(box_{colour}, target_{colour})"})
    return json.dumps(steps)


def _way(place: Place, target: Place) -> Iterator[tuple[Place, Place]]:
    while place != target:
        row, col = place
        if row != target[0]:
            step = (row + (1.0 if target[0] > row else -1.0), col)
        else:
            step = (row, col + (1.0 if target[1] > col else -1.0))
        yield place, step
        place = step


def _agent(place: Place) -> str:
    return f"Agent{list(place)}"


def rush_hour(metadata: dict[str, Any]) -> str:
    """Find the fewest slides that free car A, by breadth-first search."""
    board = metadata["board_config"]
    labels = sorted(set(board) - {"o", "x"})
    walls = sum(1 << i for i, sign in enumerate(board) if sign == "x")
    cars: list[Car] = []
    for label in labels:
        cells = [match.start() for match in re.finditer(label, board)]
        cars.append((cells[0], len(cells), cells[1] - cells[0]))
    start = tuple(first for first, _, _ in cars)
    reached: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None] = {start: None}
    queue = deque([start])
    goal = _EXIT_ROW * _SIDE + _SIDE - cars[0][1]
    while queue:
        state = queue.popleft()
        if state[0] == goal:
            return " ".join(_back(reached, state))
        for number, steps, after in _slides(state, cars, walls):
            if after not in reached:
                # The board that is shown names the cars differently, from A on.
                reached[after] = (state, f"{chr(ord('A') + number)}{steps:+d}")
                queue.append(after)
    raise ValueError(f"This board cannot be solved: {board}.")


def _back(
    reached: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None], state: tuple[int, ...]
) -> list[str]:
    moves: list[str] = []
    while (before := reached[state]) is not None:
        state, move = before
        moves.append(move)
    return moves[::-1]


def _slides(
    state: tuple[int, ...], cars: list[Car], walls: int
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield (car, signed number of cells, position after it) for every possible slide."""
    occupied = walls
    for first, (_, length, stride) in zip(state, cars, strict=True):
        for i in range(length):
            occupied |= 1 << first + i * stride
    for number, (first, (_, length, stride)) in enumerate(zip(state, cars, strict=True)):
        line = first % _SIDE if stride == 1 else first // _SIDE
        for sign, most in ((-1, line), (1, _SIDE - length - line)):
            ahead = first + (length - 1) * stride if sign > 0 else first
            for steps in range(1, most + 1):
                if occupied >> ahead + sign * steps * stride & 1:
                    break
                moved = first + sign * steps * stride
                yield number, sign * steps, (*state[:number], moved, *state[number + 1 :])


_SOLVERS: dict[str, Callable[[dict[str, Any]], str]] = {"boxnet": boxnet, "rush_hour": rush_hour}
