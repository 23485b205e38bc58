"""Sudoku grids as flat lists, with sets of numbers as bit masks: solve, fill, empty cells.

A grid of side ``n * n`` is a list of ``n ** 4`` numbers, 0 for an empty cell; the number ``v`` is
the bit ``1 << (v - 1)``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    Cell = tuple[int, int, int, int]  # index, row, column, box


class Layout:
    """The geometry of one size.

    Attributes:
        side: 4 or 9; the numbers are 1 to ``side``.
        cells: ``(index, row, column, box)`` of every cell.
        units: for each cell, the other cells of its row, its column and its box.
    """

    def __init__(self, box: int):
        side = box * box
        self.side = side
        self.box = box
        self.full = (1 << side) - 1
        self.cells: list[Cell] = [
            (r * side + c, r, c, r // box * box + c // box)
            for r in range(side)
            for c in range(side)
        ]
        self.units: list[list[list[Cell]]] = [
            [[o for o in self.cells if o != cell and o[k] == cell[k]] for k in (1, 2, 3)]
            for cell in self.cells
        ]
        self.size = [bin(m).count("1") for m in range(self.full + 1)]
        self.members = [[1 << k for k in range(side) if m >> k & 1] for m in range(self.full + 1)]


@cache
def layout(side: int) -> Layout:
    """Return the layout of a grid with side 4 or 9; it is cached.

    Raises:
        ValueError: ``side`` is another number.
    """
    if side not in (4, 9):
        raise ValueError(f"The side of a Sudoku must be 4 or 9, not {side}.")
    return Layout(2 if side == 4 else 3)


class Board:
    """A grid with the sets of the numbers in each row, column and box."""

    def __init__(self, lay: Layout, grid: list[int]):
        self.lay = lay
        side = lay.side
        self.rows = [0] * side
        self.cols = [0] * side
        self.boxes = [0] * side
        self.empty: list[Cell] = []
        for cell in lay.cells:
            value = grid[cell[0]]
            if value:
                self.toggle(cell, 1 << (value - 1))
            else:
                self.empty.append(cell)

    def toggle(self, cell: Cell, bit: int) -> None:
        """Enter a number into a cell, or remove it."""
        _, r, c, b = cell
        self.rows[r] ^= bit
        self.cols[c] ^= bit
        self.boxes[b] ^= bit

    def free(self, cell: Cell) -> int:
        """Return the set of numbers that the rules allow in an empty cell."""
        _, r, c, b = cell
        return self.lay.full & ~(self.rows[r] | self.cols[c] | self.boxes[b])

    def solve(self, numbers: dict[int, int], limit: int = 1, rng: Random | None = None) -> int:
        """Count the ways to fill ``self.empty``, up to ``limit``; the board is not changed.

        The search branches on a cell with the fewest candidates (in random order with ``rng``).

        Args:
            numbers: receives the numbers (as bits) of the last solution, by cell index.
            limit: number of solutions after which the search stops.
            rng: draws the order in which the candidates of a cell are tried.
        """
        empty = self.empty
        if not empty:
            return 1
        rows = self.rows
        cols = self.cols
        boxes = self.boxes
        full = self.lay.full
        size = self.lay.size
        best = 99
        at = 0
        free = 0
        for i, (_, r, c, b) in enumerate(empty):
            candidates = full & ~(rows[r] | cols[c] | boxes[b])
            n = size[candidates]
            if n < best:
                best = n
                at = i
                free = candidates
                if n <= 1:
                    break
        if not best:
            return 0
        cell = empty[at]
        index, r, c, b = cell
        empty[at] = empty[-1]
        empty.pop()
        bits = self.lay.members[free]
        if rng is not None and best > 1:
            bits = rng.sample(bits, best)
        count = 0
        for bit in bits:
            rows[r] ^= bit
            cols[c] ^= bit
            boxes[b] ^= bit
            n = self.solve(numbers, limit - count, rng)
            rows[r] ^= bit
            cols[c] ^= bit
            boxes[b] ^= bit
            if n:
                numbers[index] = bit
                count += n
                if count >= limit:
                    break
        empty.append(cell)
        empty[at], empty[-1] = empty[-1], empty[at]
        return count


def solution(grid: list[int], side: int, rng: Random | None = None) -> list[int] | None:
    """Return a solution of a grid (a random one with ``rng``), or ``None``."""
    numbers: dict[int, int] = {}
    if not Board(layout(side), grid).solve(numbers, 1, rng):
        return None
    return [value or numbers[i].bit_length() for i, value in enumerate(grid)]


def full_grid(side: int, rng: Random) -> list[int]:
    """Return a random complete grid: boxes on the diagonal at random, the rest by search."""
    lay = layout(side)
    grid = [0] * side**2
    # In 9x9 the diagonal boxes can always be completed; in 4x4 two of them may be incompatible.
    for k in range(lay.box if side == 9 else 1):
        numbers = rng.sample(range(1, side + 1), side)
        diagonal = k * lay.box + k
        for cell in lay.cells:
            if cell[3] == diagonal:
                grid[cell[0]] = numbers.pop()
    filled = solution(grid, side, rng)
    assert filled is not None
    return filled


def dig(grid: list[int], side: int, attempts: int, rng: Random) -> list[int]:
    """Empty cells of a complete grid so that its solution stays the only one.

    Args:
        grid: a complete grid.
        side: 4 or 9.
        attempts: number of cells, drawn without repetition, to try; a cell keeps its number if
            there would be a second solution without it.
        rng: draws the cells.
    """
    lay = layout(side)
    puzzle = grid[:]
    board = Board(lay, puzzle)
    for cell in rng.sample(lay.cells, attempts):
        index = cell[0]
        bit = 1 << (puzzle[index] - 1)
        board.toggle(cell, bit)
        if _is_forced(board, puzzle, cell, bit) or not _other_way(board, cell, bit):
            puzzle[index] = 0
            board.empty.append(cell)
        else:
            board.toggle(cell, bit)
    return puzzle


def _is_forced(board: Board, puzzle: list[int], cell: Cell, bit: int) -> bool:
    """Return whether the row, column and box of the cell alone determine its number."""
    if board.free(cell) == bit:
        return True
    rows = board.rows
    cols = board.cols
    boxes = board.boxes
    for unit in board.lay.units[cell[0]]:
        for index, r, c, b in unit:
            if not puzzle[index] and not (rows[r] | cols[c] | boxes[b]) & bit:
                break
        else:
            return True
    return False


def _other_way(board: Board, cell: Cell, bit: int) -> bool:
    """Return whether the puzzle has a solution with another number than ``bit`` in the cell."""
    for other in board.lay.members[board.free(cell) & ~bit]:
        board.toggle(cell, other)
        n = board.solve({})
        board.toggle(cell, other)
        if n:
            return True
    return False
