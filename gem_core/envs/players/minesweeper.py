"""An expert for Minesweeper: exact probabilities of mines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from math import comb
from typing import Any

from gem_core.envs.players.player import Player

_MINES = re.compile(r"with (\d+) mines")
_EXACT = 22
"""Regions with more unknown cells than this are evaluated constraint by constraint."""

Cell = tuple[int, int]
Constraint = tuple[frozenset[Cell], int]


class MineOdds(Player):
    """Reveals the cell with the lowest probability of a mine; it never sets a flag."""

    version = 1  # 1: removes a flag before it reveals the cell

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Read the number of mines."""
        rules = self.find(_MINES, obs)
        self.mines = int(rules[1])

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Compute the probability of a mine in every hidden cell and reveal the best cell."""
        lines = info["suffix"].splitlines()[1:-1]
        board = {
            (r, c): content
            for r, line in enumerate(lines)
            for c, content in enumerate(line.split()[1:])
        }
        hidden = {cell for cell, content in board.items() if content in ".F"}
        if len(hidden) == len(board):
            row = len(lines) // 2
            col = len(lines[0].split()) // 2
        else:
            odds = mine_odds(board, hidden, self.mines)
            row, col = min(odds, key=lambda cell: (odds[cell], cell))
        verb = "flag" if board[row, col] == "F" else "reveal"  # the flag has to be removed first
        return self.answer(f"{verb} {row} {col}")


def mine_odds(board: dict[Cell, str], hidden: set[Cell], mines: int) -> dict[Cell, float]:
    """Return the probability that each hidden cell is mined, given the numbers on the board."""
    constraints = _constraints(board, hidden)
    known = _deduce(constraints)
    odds = {cell: float(value) for cell, value in known.items()}
    if any(value == 0 for value in known.values()):
        return odds
    open_ = [
        (cells - known.keys(), n - sum(known.get(cell, 0) for cell in cells))
        for cells, n in constraints
    ]
    regions = list(_regions([c for c in open_ if c[0]]))
    border = set().union(*(cells for region in regions for cells, _ in region))
    rest = hidden - known.keys() - border
    left = mines - sum(known.values())
    weights = {0: 1}  # mines on the border -> ways
    counts: list[tuple[dict[int, int], dict[Cell, dict[int, int]]]] = []
    for region in regions:
        ways, per_cell = _arrangements(region)
        counts.append((ways, per_cell))
        weights = _convolve(weights, ways)
    total = sum(n * comb(len(rest), left - k) for k, n in weights.items() if k <= left)
    if not total:
        return odds or dict.fromkeys(hidden, 0.5)
    for i, (_, per_cell) in enumerate(counts):
        others = {0: 1}
        for j, (ways, _) in enumerate(counts):
            if i != j:
                others = _convolve(others, ways)
        for cell, ways in per_cell.items():
            both = _convolve(others, ways)
            mined = sum(n * comb(len(rest), left - k) for k, n in both.items() if k <= left)
            odds[cell] = mined / total
    if rest:
        expected = sum(k * n * comb(len(rest), left - k) for k, n in weights.items() if k <= left)
        odds.update(dict.fromkeys(rest, (left - expected / total) / len(rest)))
    return odds


def _constraints(board: dict[Cell, str], hidden: set[Cell]) -> list[Constraint]:
    constraints = []
    for (r, c), content in board.items():
        if content.isdigit():
            around = {(s, d) for s in (r - 1, r, r + 1) for d in (c - 1, c, c + 1)} & hidden
            if around:
                constraints.append((frozenset(around), int(content)))
    return constraints


def _deduce(constraints: list[Constraint]) -> dict[Cell, int]:
    """Apply "none or all of these are mined", also to the difference of nested constraints."""
    known: dict[Cell, int] = {}
    todo = set(constraints)
    for cells, n in constraints:
        todo.update((cells - other, n - m) for other, m in constraints if other < cells)
    changed = True
    while changed:
        changed = False
        for cells, n in todo:
            free = [cell for cell in cells if cell not in known]
            left = n - sum(known.get(cell, 0) for cell in cells)
            if free and left in (0, len(free)):
                known.update(dict.fromkeys(free, int(left > 0)))
                changed = True
    return known


def _regions(constraints: list[Constraint]) -> Iterator[list[Constraint]]:
    """Split constraints into groups that share no cell, and very large groups into single ones."""
    while constraints:
        region = [constraints[0]]
        cells = set(constraints[0][0])
        rest = constraints[1:]
        grown = True
        while grown:
            touching = [c for c in rest if c[0] & cells]
            grown = bool(touching)
            rest = [c for c in rest if not c[0] & cells]
            region += touching
            cells = cells.union(*(c[0] for c in touching))
        constraints = rest
        if len(cells) <= _EXACT:
            yield region
        else:
            used: set[Cell] = set()
            for constraint in sorted(region, key=lambda constraint: len(constraint[0])):
                if not constraint[0] & used:
                    used |= constraint[0]
                    yield [constraint]


def _arrangements(region: list[Constraint]) -> tuple[dict[int, int], dict[Cell, dict[int, int]]]:
    """Count the arrangements of mines: by number of mines, and for each cell those that mine it."""
    ways: dict[int, int] = {}
    per_cell: dict[Cell, dict[int, int]] = {cell: {} for cells, _ in region for cell in cells}
    for mined in _lay(sorted(region, key=lambda c: len(c[0])), frozenset(), frozenset()):
        k = len(mined)
        ways[k] = ways.get(k, 0) + 1
        for cell in mined:
            per_cell[cell][k] = per_cell[cell].get(k, 0) + 1
    return ways, per_cell


def _lay(
    region: list[Constraint], mined: frozenset[Cell], free: frozenset[Cell]
) -> Iterator[frozenset[Cell]]:
    if not region:
        yield mined
        return
    # The constraint with the fewest open cells branches least.
    cells, n = min(region, key=lambda c: len(c[0] - mined - free))
    rest = [c for c in region if c[0] != cells]
    unknown = cells - mined - free
    need = n - len(cells & mined)
    if 0 <= need <= len(unknown):
        for chosen in combinations(sorted(unknown), need):
            yield from _lay(rest, mined.union(chosen), free | unknown.difference(chosen))


def _convolve(a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
    """Return the counts of the sums of two numbers of mines."""
    counts: dict[int, int] = {}
    for i, ways_a in a.items():
        for j, ways_b in b.items():
            counts[i + j] = counts.get(i + j, 0) + ways_a * ways_b
    return counts
