"""Sokoban rooms, made by playing backwards: boxes on their goals are pulled away from them.

A set of cells is an integer with one bit per cell, row by row. Rooms have walls on all sides, so
that moving a set by one cell is a shift that never wraps around.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random

_SHAPES = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
)
"""Shapes that a random walk leaves behind, as (row, column) around it; GEM's (and gym-sokoban's)
five masks."""
_STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))
_TURN = 0.35
MAX_STATES = 300
"""Bounds of the search, chosen so that rooms are as difficult as those of GEM's full search."""
MAX_PULLS = 60


class Room(NamedTuple):
    """A room to be solved.

    Attributes:
        width: cells per row, walls included.
        floor: the set of cells that are not walls.
        goals: the cells of the goals.
        boxes: the cells of the boxes; ``boxes[i]`` was pulled away from ``goals[i]``.
        player: the cell of the player.
    """

    width: int
    floor: int
    goals: list[int]
    boxes: tuple[int, ...]
    player: int


def make_room(
    height: int, width: int, boxes: int, rng: Random, most_pulls: int = MAX_PULLS
) -> Room:
    """Return a random room that can be solved, with no box on a goal.

    Args:
        height: rows, outer walls included.
        width: columns, outer walls included.
        boxes: number of boxes.
        rng: draws the room.
        most_pulls: that many pushes, or fewer, solve the room.
    """
    steps = int(1.7 * (height + width))
    while True:
        floor = carve(height, width, steps, rng)
        cells = [i for i in range(height * width) if floor >> i & 1]
        if len(cells) <= boxes + 1:
            continue
        player, *goals = rng.sample(cells, boxes + 1)
        goals.sort()
        if _frozen(floor, width, tuple(goals), player):
            continue
        pulled = pull_away(floor, width, goals, player, rng, most_pulls)
        if pulled is not None:
            room = Room(width, floor, goals, *pulled)
            if not _in_corridor(room) and not _frozen(floor, width, room.boxes, room.player):
                return room


def carve(height: int, width: int, steps: int, rng: Random) -> int:
    """Return the floor of a random walk that removes a whole shape of walls at each step."""
    random = rng.random
    step = _STEPS[int(random() * 4)]
    row = 1 + int(random() * (height - 1))
    col = 1 + int(random() * (width - 1))
    floor = 0
    for _ in range(steps):
        if random() < _TURN:
            step = _STEPS[int(random() * 4)]
        row = min(max(row + step[0], 1), height - 2)
        col = min(max(col + step[1], 1), width - 2)
        for r, c in _SHAPES[int(random() * 5)]:
            r += row
            c += col
            if 0 < r < height - 1 and 0 < c < width - 1:
                floor |= 1 << r * width + c
    return floor


def reach(free: int, start: int, width: int) -> int:
    """Return the cells that a player on ``start`` can walk to through the set ``free``."""
    now = 1 << start
    while True:
        new = (now | now << 1 | now >> 1 | now << width | now >> width) & free
        if new == now:
            return now
        now = new


def pull_away(
    floor: int,
    width: int,
    goals: list[int],
    player: int,
    rng: Random,
    most_pulls: int = MAX_PULLS,
) -> tuple[tuple[int, ...], int] | None:
    """Pull boxes off the goals, depth first; return the boxes and the player of the best position.

    The best position has the largest product of the pulls on the way to it and the distance
    between boxes and their goals, as in GEM; no box is on a goal.
    """
    goal_set = sum(1 << g for g in goals)
    directions = [1, -1, width, -width]
    rng.shuffle(directions)
    far = {g: _distances(g, floor.bit_length() + width, width) for g in goals}
    own = [far[g] for g in goals]
    best = None
    best_score = 0
    start = sum(1 << g for g in goals)
    visited = {(start, player)}
    regions: set[tuple[int, int]] = set()
    stack = [(tuple(goals), start, player, 0)]
    states = 0
    while stack and states < MAX_STATES:
        boxes, occupied, at, pulls = stack.pop()
        free = floor & ~occupied
        region = reach(free, at, width)
        if (occupied, region) in regions:
            continue
        regions.add((occupied, region))
        states += 1
        if not occupied & goal_set:
            score = pulls * sum(d[b] for d, b in zip(own, boxes, strict=True))
            if score > best_score:
                best = (boxes, at, region)
                best_score = score
        if pulls >= most_pulls:
            continue
        for i, box in enumerate(boxes):
            for step in directions:
                side = box + step
                if region >> side & 1 and free >> side + step & 1:
                    new = occupied ^ (1 << box) ^ (1 << side)
                    if (new, side + step) not in visited:
                        visited.add((new, side + step))
                        moved = (*boxes[:i], side, *boxes[i + 1 :])
                        stack.append((moved, new, side + step, pulls + 1))
    if best is None:
        return None
    boxes, at, region = best
    if goal_set >> at & 1:
        cells = [i for i in range(floor.bit_length()) if (region & ~goal_set) >> i & 1]
        if not cells:
            return None
        at = cells[int(rng.random() * len(cells))]
    return boxes, at


def _distances(goal: int, cells: int, width: int) -> list[int]:
    row, col = divmod(goal, width)
    return [abs(i // width - row) + abs(i % width - col) for i in range(cells)]


def _frozen(floor: int, width: int, boxes: tuple[int, ...], player: int) -> bool:
    """Return whether a box can be moved in no direction: no space in front of it or behind it."""
    occupied = sum(1 << b for b in boxes)
    free = floor & ~occupied
    ahead = free & ~(1 << player)
    return any(
        not any(
            ahead >> box + step & 1 and free >> box - step & 1 for step in (1, -1, width, -width)
        )
        for box in boxes
    )


def _in_corridor(room: Room) -> bool:
    """Return whether a box stands between two opposite walls."""
    floor = room.floor
    width = room.width
    return any(
        not floor >> box - step & 1 and not floor >> box + step & 1
        for box in room.boxes
        for step in (1, width)
    )
