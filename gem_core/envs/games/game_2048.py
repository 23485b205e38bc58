"""2048: slide and merge tiles until one has reached a target."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import log2
from typing import TYPE_CHECKING

from gem_core.envs.games.game import Game
from gem_core.errors import GemError

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult

    Row = tuple[int, ...]

DIRECTIONS = ("up", "down", "left", "right")
_SIZES = ((16, 20), (32, 30), (64, 50))
"""(target, turns) from which the random variant draws."""
_LARGEST = 1 << 65
"""More than any tile that a board of 8x8 can have."""
_MOST_BOARDS = 2000
"""Boards that are drawn for one that is near the end."""


class Game2048(Game):
    """Reach a tile of ``target_tile`` by sliding all tiles in one of four directions.

    A new largest tile earns ``log2(new / old) / log2(target / first)``, so that the target has
    earned 1. A move that moves nothing is invalid. When no move is possible the game is lost.

    A new tile is at most 4, so that a target of ``t`` needs at least ``t / 4 - 2`` moves: GEM's
    hard (512 in 50) and extreme-hard (2048 in 100) variants cannot be won; they reward progress.

    Args:
        target_tile: a power of 2, at least 8; ``None`` draws target and turns at each reset.
        max_turns: number of moves.
        board_size: side of the board, from 2 to 8.
        moves_left: the start is near the end of a game: half of the cells have tiles, of any value
            below the target, and so many moves reach it, from 1 to 4, if no new tile is in the
            way. Fewer moves do not. ``None``: two tiles, 2 or sometimes 4.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _gem_form = "(up|down|left|right)"
    _gem_ignores_case = True
    _state_fields = (*Game._state_fields, "_rows", "_target", "_first", "_best")
    _rows: tuple[Row, ...]
    _target: int
    _first: int  # the largest tile at the start
    _best: int  # the largest tile so far

    def __init__(
        self,
        *,
        target_tile: int | None = 64,
        max_turns: int | None = 50,
        board_size: int = 4,
        moves_left: int | None = None,
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, **options)
        if moves_left is not None and not 1 <= moves_left <= 4:
            raise ValueError(f"moves_left must be from 1 to 4, not {moves_left}.")
        self.moves_left = moves_left
        if target_tile is not None and (target_tile < 8 or target_tile & (target_tile - 1)):
            raise ValueError(f"target_tile must be a power of 2 of at least 8, not {target_tile}.")
        if not 2 <= board_size <= 8:
            raise ValueError(f"board_size must be from 2 to 8, not {board_size}.")
        self.target_tile = target_tile
        self.board_size = board_size
        self._varies = target_tile is None or max_turns is None

    def _start(self) -> None:
        target = self.target_tile
        if target is None or self.max_turns is None:
            target, self._budget = self.rng.choice(_SIZES)
        self._target = target
        size = self.board_size
        self._rows = ((0,) * size,) * size
        if self.moves_left is None:
            self._add_tile()
            self._add_tile()
        else:
            self._rows = self._near_end(self.moves_left)
        self._first = max(map(max, self._rows))
        self._best = self._first

    def _near_end(self, moves: int) -> tuple[Row, ...]:
        """Draw a board from which ``moves`` moves reach the target, and fewer do not.

        Raises:
            GemError: no board was found.
        """
        size = self.board_size
        values = [1 << power for power in range(1, int(log2(self._target)))]
        for _ in range(_MOST_BOARDS):
            cells = [0] * size**2
            for cell in self.rng.sample(range(size**2), (size**2 + 1) // 2):
                cells[cell] = self.rng.choice(values)
            rows = tuple(tuple(cells[at : at + size]) for at in range(0, size**2, size))
            if len(moves_to(rows, self._target, moves)) == moves:
                return rows
        raise GemError(
            f"2048: {_MOST_BOARDS} boards were drawn and of none the tile {self._target} is "
            f"{moves} moves away: set moves_left or target_tile lower."
        )

    def _consistent(self) -> bool:
        size = self.board_size
        rows = self._rows
        tiles = [tile for row in rows for tile in row]
        return (
            super()._consistent()
            and [len(row) for row in rows] == [size] * size
            and all(tile == 0 or _is_tile(tile) for tile in tiles)
            and any(tiles)
            and _is_tile(self._target)
            and 2 <= self._first < self._target
            and self._first <= self._best
        )

    def _restored(self) -> None:
        self._rows = tuple(map(tuple, self._rows))

    def _rules(self) -> str:
        return (
            f"You are playing 2048 on a board of {self.board_size}x{self.board_size} cells.\n"
            f"Reach the tile {self._target} within {self._budget} turns. A move slides all tiles "
            "as far as they go in one direction: up, down, left or right. Two equal tiles that "
            "meet merge into one of twice the value. After each move a new tile, 2 or sometimes 4, "
            "appears in an empty cell ('.'). A direction in which nothing moves uses up a turn; "
            "when nothing can move in any direction, the game is lost.\n"
            f"Write your move like this: {self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        if answer not in DIRECTIONS:
            answer = answer[:20].lower()
            if answer not in DIRECTIONS:
                if self.compat:  # a letter that only ignoring case makes an i
                    return self._invalid(f"No tile can move {answer}.")
                return self._malformed("it is not one of up, down, left and right")
        moved = slide(self._rows, answer)
        if moved == self._rows:
            return self._invalid(f"No tile can move {answer}.")
        self._rows = moved
        reward = self._reward["step"]
        largest = max(map(max, moved))
        if largest > self._best:
            reward += self._progress(largest)
        empty = self._add_tile()
        obs = f"Turn {self._turn}: you moved {answer}."
        if self._best >= self._target:
            return self._win(f"{obs} You have reached {self._target}. You have won.", reward)
        if empty == 1 and not can_move(self._rows):
            return self._lose(f"{obs} No move is possible. You have lost.", reward, "lost")
        return self._continue(obs, reward)

    def _progress(self, largest: int) -> float:
        largest = min(largest, self._target)
        whole = log2(self._target) - log2(self._first)
        part = log2(largest) - log2(self._best)
        self._best = largest
        return self._reward["success"] * part / whole

    def _add_tile(self) -> int:
        """Put a 2 (9 times out of 10) or a 4 into an empty cell; return how many were empty."""
        rows = self._rows
        random = self.rng.random
        counts = [row.count(0) for row in rows]
        empty = sum(counts)
        skip = int(random() * empty)
        tile = 2 if random() < 0.9 else 4
        for r, count in enumerate(counts):
            if skip < count:
                row = list(rows[r])
                at = -1
                for _ in range(skip + 1):
                    at = row.index(0, at + 1)
                row[at] = tile
                self._rows = (*rows[:r], tuple(row), *rows[r + 1 :])
                break
            skip -= count
        return empty

    def _board(self) -> str:
        return "\n".join([*map(_row_text, self._rows), "Enter your next move."])

    def _example(self) -> str:
        return "left"

    def random_action(self, rng: Random) -> str:
        """Return one of the four directions, drawn from ``rng``."""
        return self._answer(DIRECTIONS[int(rng.random() * 4)])


def _is_tile(number: int) -> bool:
    return 2 <= number <= _LARGEST and number & (number - 1) == 0


def slide(rows: tuple[Row, ...], direction: str) -> tuple[Row, ...]:
    """Return the board after a move, before the new tile appears.

    >>> slide(((2, 2), (0, 4)), "left")
    ((4, 0), (4, 0))
    """
    if direction == "left":
        return tuple(map(_to_start, rows))
    if direction == "right":
        return tuple(map(_to_end, rows))
    columns = map(_to_start if direction == "up" else _to_end, zip(*rows, strict=True))
    return tuple(zip(*columns, strict=True))


def moves_to(rows: tuple[Row, ...], target: int, most: int) -> tuple[str, ...]:
    """Return the fewest moves to a tile as if no new ones appeared; ``()``: more than ``most``.

    >>> moves_to(((4, 2), (0, 2)), 8, 2)
    ('up', 'left')
    """
    reached: dict[tuple[Row, ...], tuple[str, ...]] = {rows: ()}
    for _ in range(most):
        reached = {
            moved: (*moves, direction)
            for board, moves in reached.items()
            for direction in DIRECTIONS
            if (moved := slide(board, direction)) != board
        }
        for board, moves in reached.items():
            if max(map(max, board)) >= target:
                return moves
    return ()


def can_move(rows: tuple[Row, ...]) -> bool:
    """Return whether a full board has two equal tiles side by side."""
    lines = (*rows, *zip(*rows, strict=True))
    return any(a == b for line in lines for a, b in pairwise(line))


# A row has few different contents: with a cache, a move is a few look-ups.
@lru_cache(maxsize=1 << 15)
def _to_start(row: Row) -> Row:
    merged: list[int] = []
    last = 0
    for tile in row:
        if tile and tile == last:
            merged[-1] *= 2
            last = 0
        elif tile:
            merged.append(tile)
            last = tile
    return tuple(merged + [0] * (len(row) - len(merged)))


@lru_cache(maxsize=1 << 15)
def _to_end(row: Row) -> Row:
    return _to_start(row[::-1])[::-1]


@lru_cache(maxsize=1 << 15)
def _row_text(row: Row) -> str:
    return " ".join(f"{tile:4}" if tile else "   ." for tile in row)
