"""An expert for Sokoban: A* search over pushes."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from typing import Any

from gem_core.players.player import Player

_NAMES = ("up", "down", "left", "right")
_MOST = 40_000
"""Positions after which the search gives up."""
_NEVER = 10**6
"""A number of moves that stands for "not at all"."""


class PushSearch(Player):
    """Plans the fewest moves that bring all boxes to goals, then follows the plan.

    Args:
        rng: the player's own generator.
        answer_format: the format of actions.
    """

    def __init__(self, rng: Random, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Read the room and plan."""
        self.plan = solve(info["suffix"])

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Play the next move of the plan, or any move when there is no plan."""
        return self.answer(self.plan.pop() if self.plan else self.rng.choice(_NAMES))


class Warehouse:
    """The parts of a room that do not change, and the distances of its cells to the goals.

    Args:
        text: the room as the environment shows it.
    """

    def __init__(self, text: str):
        rows = [line.split() for line in text.splitlines() if line.startswith("#")]
        width = len(rows[0])
        self.width = width
        cells = [cell for row in rows for cell in row]
        self.floor = [cell != "#" for cell in cells]
        self.goals = frozenset(i for i, cell in enumerate(cells) if cell in "O√S")
        self.boxes = frozenset(i for i, cell in enumerate(cells) if cell in "X√")
        self.player = next(i for i, cell in enumerate(cells) if cell in "PS")
        self.steps = (-width, width, -1, 1)
        self.far = self._push_distances()

    def _push_distances(self) -> list[int]:
        """Return for each cell the fewest pushes of a lone box to a goal."""
        far = [_NEVER] * len(self.floor)
        queue = list(self.goals)
        for goal in queue:
            far[goal] = 0
        for at in queue:
            for step in self.steps:
                box = at - step
                player = at - 2 * step
                if self.floor[box] and self.floor[player] and far[box] == _NEVER:
                    far[box] = far[at] + 1
                    queue.append(box)
        return far

    def walks(self, boxes: frozenset[int], start: int) -> dict[int, int]:
        """Return the number of moves from ``start`` to each cell that the player can reach."""
        moves = {start: 0}
        queue = [start]
        for at in queue:
            for step in self.steps:
                to = at + step
                if self.floor[to] and to not in boxes and to not in moves:
                    moves[to] = moves[at] + 1
                    queue.append(to)
        return moves

    def walk(self, boxes: frozenset[int], start: int, goal: int) -> list[str]:
        """Return the moves of a shortest walk, the last one first."""
        moves = self.walks(boxes, goal)
        names = []
        while start != goal:
            for name, step in zip(_NAMES, self.steps, strict=True):
                if moves.get(start + step, _NEVER) < moves[start]:
                    names.append(name)
                    start += step
                    break
        return names[::-1]


def solve(text: str, most: int = _MOST) -> list[str]:
    """Return the fewest moves that solve a room, the last one first.

    Args:
        text: the room as the environment shows it.
        most: number of positions after which the search gives up and returns ``[]``.
    """
    warehouse = Warehouse(text)
    far = warehouse.far
    goals = warehouse.goals
    start = (warehouse.boxes, warehouse.player)
    cost = {start: 0}
    came: dict[tuple[frozenset[int], int], tuple[tuple[frozenset[int], int], int, int]] = {}
    queue = [(sum(far[b] for b in warehouse.boxes), 0, 0, start)]
    done: set[tuple[frozenset[int], int]] = set()
    count = 0
    while queue and len(done) < most:
        _, _, _, at = heappop(queue)
        boxes, player = at
        if boxes == goals:
            return _moves(warehouse, came, at)
        if at in done:
            continue
        done.add(at)
        base = sum(far[b] for b in boxes)
        walks = warehouse.walks(boxes, player)
        for box in boxes:
            for k, step in enumerate(warehouse.steps):
                to = box + step
                if box - step not in walks or far[to] == _NEVER or to in boxes:
                    continue
                new = (boxes - {box} | {to}, box)
                moves = cost[at] + walks[box - step] + 1
                if moves < cost.get(new, _NEVER):
                    cost[new] = moves
                    came[new] = (at, box - step, k)
                    count += 1
                    left = base - far[box] + far[to]
                    heappush(queue, (moves + left, left, count, new))
    return []


def _moves(
    warehouse: Warehouse,
    came: dict[tuple[frozenset[int], int], tuple[tuple[frozenset[int], int], int, int]],
    at: tuple[frozenset[int], int],
) -> list[str]:
    plan = []
    while at in came:
        before, stand, k = came[at]
        plan.append(_NAMES[k])
        plan += warehouse.walk(before[0], before[1], stand)
        at = before
    return plan
