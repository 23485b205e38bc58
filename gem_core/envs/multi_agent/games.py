"""Tic-tac-toe and Nim."""

from __future__ import annotations

from functools import cache, reduce
from operator import xor
from typing import TYPE_CHECKING

from gem_core.envs.multi_agent.base import MultiAgentEnv

if TYPE_CHECKING:
    from random import Random
    from typing import Any

_ROWS = ((0, 1, 2), (3, 4, 5), (6, 7, 8))
_COLUMNS = ((0, 3, 6), (1, 4, 7), (2, 5, 8))
_DIAGONALS = ((0, 4, 8), (2, 4, 6))
_LINES = (*_ROWS, *_COLUMNS, *_DIAGONALS)
_SIGNS = "XO"


class TicTacToe(MultiAgentEnv):
    """Three in a row on a board of nine squares, numbered 1 to 9."""

    _state_fields = (*MultiAgentEnv._state_fields, "_squares")
    _squares: str

    def legal_moves(self) -> list[str]:
        """Return the numbers of the empty squares."""
        return [str(i + 1) for i, sign in enumerate(self._squares) if sign == "."]

    def perfect_move(self, rng: Random) -> str:
        """Return a move with the best result that can be forced."""
        best = max(_value(_after(self._squares, m)) for m in self.legal_moves())
        return rng.choice(
            [m for m in self.legal_moves() if _value(_after(self._squares, m)) == best]
        )

    def _start(self) -> None:
        self._squares = "." * 9

    def _consistent(self) -> bool:
        return len(self._squares) == 9 and set(self._squares) <= set(f".{_SIGNS}")

    def _rules(self) -> str:
        return (
            "You are playing Tic-tac-toe. The squares are numbered 1 to 9, row by row. The first "
            "player places X, the second O; three equal signs in a row, column or diagonal win.\n"
            f"Write the number of a free square like this: {self.write('5')}"
        )

    def _play(self, move: str) -> None:
        self._squares = _after(self._squares, move)

    def _winner(self) -> int | None:
        return _find_winner(self._squares)

    def _board(self) -> str:
        shown = [s if s != "." else str(i + 1) for i, s in enumerate(self._squares)]
        return "\n".join(" ".join(shown[row : row + 3]) for row in (0, 3, 6))


def _after(squares: str, move: str) -> str:
    index = int(move) - 1
    sign = _SIGNS[(9 - squares.count(".")) % 2]
    return squares[:index] + sign + squares[index + 1 :]


@cache
def _find_winner(squares: str) -> int | None:
    for a, b, c in _LINES:
        if squares[a] != "." and squares[a] == squares[b] == squares[c]:
            return _SIGNS.index(squares[a])
    return None if "." in squares else -1


@cache
def _value(squares: str) -> int:
    """Return 1, 0 or -1: win, draw or loss for the player who just moved, with perfect play."""
    winner = _find_winner(squares)
    if winner is not None:
        return 0 if winner < 0 else 1
    free = [i for i, sign in enumerate(squares) if sign == "."]
    return -max(_value(_after(squares, str(i + 1))) for i in free)


class Nim(MultiAgentEnv):
    """Take any number of objects from one heap; whoever takes the last one wins.

    The heaps are drawn so that the first player can always force a win.

    Args:
        heaps: number of heaps.
        largest: largest number of objects in a heap.
        **options: see `MultiAgentEnv`.
    """

    _state_fields = (*MultiAgentEnv._state_fields, "_heaps")
    _heaps: list[int]

    def __init__(self, *, heaps: int = 3, largest: int = 7, **options: Any):
        super().__init__(**options)
        if heaps < 2 or largest < 2:
            raise ValueError(f"heaps and largest must be at least 2, not {heaps} and {largest}.")
        self.heaps = heaps
        self.largest = largest

    def legal_moves(self) -> list[str]:
        """Return ``"heap count"`` for every possible move, heaps numbered from 1."""
        return [f"{i + 1} {n}" for i, heap in enumerate(self._heaps) for n in range(1, heap + 1)]

    def perfect_move(self, rng: Random) -> str:
        """Return a move after which the xor of all heaps is zero, if there is one (Bouton 1901)."""
        total = reduce(xor, self._heaps)
        for i, heap in enumerate(self._heaps):
            if total and heap ^ total < heap:
                return f"{i + 1} {heap - (heap ^ total)}"
        return rng.choice(self.legal_moves())

    def _start(self) -> None:
        while True:
            self._heaps = [self.rng.randint(1, self.largest) for _ in range(self.heaps)]
            if reduce(xor, self._heaps):
                return

    def _consistent(self) -> bool:
        return len(self._heaps) == self.heaps and all(0 <= n <= self.largest for n in self._heaps)

    def _rules(self) -> str:
        return (
            "You are playing Nim. The players take turns; each takes one or more objects from a "
            "single heap. Whoever takes the last object wins.\n"
            f"To take 2 objects from heap 1, write: {self.write('1 2')}"
        )

    def _play(self, move: str) -> None:
        heap, count = map(int, move.split())
        heaps = list(self._heaps)
        heaps[heap - 1] -= count
        self._heaps = heaps

    def _winner(self) -> int | None:
        return None if any(self._heaps) else 1 - self._to_move

    def _board(self) -> str:
        return "\n".join(f"Heap {i + 1}: {n}" for i, n in enumerate(self._heaps))
