"""The sliding puzzle: bring the numbered tiles into order."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gem_core.envs.games.game import Game

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult

_DIRECTIONS = ("up", "down", "left", "right")
_SIZES = ((2, 10), (3, 20), (4, 50))
"""(rows, turns) from which the random variant draws."""


class FifteenPuzzle(Game):
    """Slide tiles into the empty space until they are in order, the space last.

    The reward is 1 when the puzzle is solved. When the turns are used up it is the share of cells,
    including the space, that are right. A start is made by ``shuffle_moves`` random slides (or one
    more) from the solved board, so that it can be solved, and it is never solved already. With
    ``compat="gem-0.1.0"`` a start is any order of the tiles, and half of them cannot be solved.

    Args:
        num_rows: side of the board, from 2 to 9; ``None`` draws side and turns at each reset.
        max_turns: number of slides.
        shuffle_moves: number of random slides of a start; a slide may undo the previous one.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _gem_form = "(up|down|left|right)"
    _state_fields = (*Game._state_fields, "_side", "_empty", "_text")
    _side: int
    _empty: int  # the cell without a tile
    _text: str  # the board as shown, 3 characters per cell

    def __init__(
        self,
        *,
        num_rows: int | None = 2,
        max_turns: int | None = 10,
        shuffle_moves: int = 100,
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, **options)
        if num_rows is not None and not 2 <= num_rows <= 9:
            raise ValueError(f"num_rows must be from 2 to 9, not {num_rows}.")
        if shuffle_moves < 1:
            raise ValueError(f"shuffle_moves must be at least 1, not {shuffle_moves}.")
        self.num_rows = num_rows
        self.shuffle_moves = shuffle_moves
        self._varies = num_rows is None or max_turns is None

    def _start(self) -> None:
        side = self.num_rows
        if side is None or self.max_turns is None:
            side, self._budget = self.rng.choice(_SIZES)
        self._side = side
        last = side * side - 1
        tiles = list(range(1, last + 2))
        solved = list(tiles)
        while tiles == solved:
            if self.compat:
                self.rng.shuffle(tiles)
            else:
                _shuffle(tiles, side, self.shuffle_moves, self.rng)
        self._empty = tiles.index(last + 1)
        names = [f"{t:2}" if t <= last else "__" for t in tiles]
        rows = (" ".join(names[r : r + side]) for r in range(0, last + 1, side))
        self._text = "\n".join(rows)

    def _consistent(self) -> bool:
        side = self._side
        if not (super()._consistent() and 2 <= side <= 9 and 0 <= self._empty < side * side):
            return False
        at = 3 * self._empty
        return (
            len(self._text) == len(_write_solved(side))
            and self._text[at : at + 2] == "__"
            and sorted(self._text.split()) == sorted(_write_solved(side).split())
        )

    def _rules(self) -> str:
        last = self._side**2 - 1
        return (
            f"You are playing the {last}-Puzzle on a board of {self._side}x{self._side} cells.\n"
            f"Bring the tiles into the order 1 to {last}, row by row, with the empty space, shown "
            f"as '__', in the last cell. You have {self._budget} turns. A move slides a tile next "
            "to the space into it:\n"
            "up: the tile below the space moves up.\n"
            "down: the tile above the space moves down.\n"
            "left: the tile to the right of the space moves left.\n"
            "right: the tile to the left of the space moves right.\n"
            f"Write your move like this: {self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        side = self._side
        empty = self._empty
        targets = slides_of(side)[empty]
        if answer not in targets:
            answer = answer[:20].lower()
            if answer not in _DIRECTIONS:
                return self._malformed("it is not one of up, down, left and right")
            if answer not in targets:
                return self._invalid(f"There is no tile that can move {answer}.")
        tile = targets[answer]
        text = self._text
        a = 3 * empty
        b = 3 * tile
        name = text[b : b + 2]
        if a < b:
            text = f"{text[:a]}{name}{text[a + 2 : b]}__{text[b + 2 :]}"
        else:
            text = f"{text[:b]}__{text[b + 2 : a]}{name}{text[a + 2 :]}"
        self._text = text
        self._empty = tile
        obs = f"Turn {self._turn}: tile {name.strip()} moved {answer}."
        if tile == side * side - 1 and text == _write_solved(side):
            return self._win(f"{obs} The puzzle is solved. You have won.", self._reward["success"])
        return self._continue(obs, self._reward["step"])

    def _limit_reward(self, reward: float, valid: bool) -> float:
        right = map(str.__eq__, self._text.split(), _write_solved(self._side).split())
        return reward + self._reward["success"] * sum(right) / self._side**2

    def _board(self) -> str:
        return f"{self._text}\nEnter your next move."

    def _example(self) -> str:
        return "up"

    def random_action(self, rng: Random) -> str:
        """Return one of the four directions, drawn from ``rng``."""
        return self._answer(_DIRECTIONS[int(rng.random() * 4)])


@cache
def slides_of(side: int) -> tuple[dict[str, int], ...]:
    """Return for each place of the space: direction -> cell of the tile that moves that way."""
    slides = []
    for empty in range(side * side):
        row, col = divmod(empty, side)
        targets = {}
        if row < side - 1:
            targets["up"] = empty + side
        if row:
            targets["down"] = empty - side
        if col < side - 1:
            targets["left"] = empty + 1
        if col:
            targets["right"] = empty - 1
        slides.append(targets)
    return tuple(slides)


@cache
def _steps(side: int) -> tuple[tuple[int, ...], ...]:
    """Return for each place of the space its next places: 12 entries, each place equally often."""
    return tuple(tuple(t.values()) * (12 // len(t)) for t in slides_of(side))


@cache
def _write_solved(side: int) -> str:
    names = [*(f"{t:2}" for t in range(1, side * side)), "__"]
    return "\n".join(" ".join(names[r : r + side]) for r in range(0, side * side, side))


def _shuffle(tiles: list[int], side: int, moves: int, rng: Random) -> None:
    """Make random slides; all possible slides are equally likely."""
    steps = _steps(side)
    empty = tiles.index(side * side)
    moves += rng.random() < 0.5  # only even numbers would reach only half of the boards
    for draw in rng.choices(range(12), k=moves):
        tile = steps[empty][draw]
        tiles[empty] = tiles[tile]
        empty = tile
    tiles[empty] = side * side
