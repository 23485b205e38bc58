"""An expert for Sokoban: A* search over pushes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from gem_core.envs.players.planner import Planner

_NAMES = ("up", "down", "left", "right")
_MOST = 40_000
"""Positions after which the search gives up."""
_NEVER = 10**6
"""A number of moves that stands for "not at all"."""


Placing = tuple[frozenset[int], int]
"""The cells of the boxes and the cell of the player."""
_Came = dict[Placing, tuple[Placing, int, int]]
"""Position -> the position before it, where the player stood, and the direction of the push."""


class PushSearch(Planner[Placing]):
    """Plans the fewest moves that bring all boxes to goals, then follows the plan."""

    moves = _NAMES

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Read the walls and the goals."""
        super().reset(obs, info)
        self.warehouse = Warehouse(info["suffix"])

    def read(self, board: str) -> Placing:
        """Return where the boxes and the player are."""
        return placing(cells_of(board))

    def search(self, position: Placing) -> list[str]:
        """Return the fewest moves that solve the room."""
        return self.warehouse.solve(position)

    def after(self, position: Placing, move: str) -> Placing:
        """Return where the boxes and the player are after a move."""
        boxes, player = position
        step = self.warehouse.steps[_NAMES.index(move)]
        to = player + step
        return (boxes - {to} | {to + step} if to in boxes else boxes), to


class Warehouse:
    """The parts of a room that do not change, and the distances of its cells to the goals.

    Args:
        text: the room as the environment shows it.
    """

    def __init__(self, text: str):
        cells = cells_of(text)
        width = len(text.splitlines()[0].split())
        self.floor = [cell != "#" for cell in cells]
        self.goals = frozenset(i for i, cell in enumerate(cells) if cell in "O√S")
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

    def solve(self, start: Placing, most: int = _MOST) -> list[str]:
        """Return the fewest moves that solve the room, the last one first.

        Args:
            start: where the boxes and the player are.
            most: number of positions after which the search gives up and returns ``[]``.
        """
        far = self.far
        cost = {start: 0}
        came: _Came = {}
        queue = [(sum(far[b] for b in start[0]), 0, 0, start)]
        done: set[Placing] = set()
        count = 0
        while queue and len(done) < most:
            _, _, _, at = heappop(queue)
            boxes, player = at
            if boxes == self.goals:
                return _moves(self, came, at)
            if at in done:
                continue
            done.add(at)
            base = sum(far[b] for b in boxes)
            walks = self.walks(boxes, player)
            for box, k, new in self._pushes(boxes, walks):
                stand = box - self.steps[k]
                moves = cost[at] + walks[stand] + 1
                if moves < cost.get(new, _NEVER):
                    cost[new] = moves
                    came[new] = (at, stand, k)
                    count += 1
                    left = base - far[box] + far[box + self.steps[k]]
                    heappush(queue, (moves + left, left, count, new))
        return []

    def _pushes(
        self, boxes: frozenset[int], walks: dict[int, int]
    ) -> Iterator[tuple[int, int, Placing]]:
        """Yield ``(box, number of the direction, position after it)`` of every useful push."""
        for box in boxes:
            for k, step in enumerate(self.steps):
                to = box + step
                if box - step in walks and self.far[to] != _NEVER and to not in boxes:
                    yield box, k, (boxes - {box} | {to}, box)


def cells_of(text: str) -> list[str]:
    """Return the cells of a room, row by row."""
    return [cell for line in text.splitlines() if line.startswith("#") for cell in line.split()]


def placing(cells: Sequence[str]) -> Placing:
    """Return where the boxes and the player are."""
    boxes = frozenset(i for i, cell in enumerate(cells) if cell in "X√")
    return boxes, next(i for i, cell in enumerate(cells) if cell in "PS")


def solve(text: str, most: int = _MOST) -> list[str]:
    """Return the fewest moves that solve a room, the last one first.

    Args:
        text: the room as the environment shows it.
        most: number of positions after which the search gives up and returns ``[]``.
    """
    return Warehouse(text).solve(placing(cells_of(text)), most)


def _moves(warehouse: Warehouse, came: _Came, at: Placing) -> list[str]:
    plan = []
    while at in came:
        before, stand, k = came[at]
        plan.append(_NAMES[k])
        plan += warehouse.walk(before[0], before[1], stand)
        at = before
    return plan
