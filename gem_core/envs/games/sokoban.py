"""Sokoban: push all boxes onto goals. Every room can be solved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.envs.games.game import Game
from gem_core.envs.games.sokoban_room import MAX_PULLS, make_room

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult
    from gem_core.envs.games.sokoban_room import Room

_DIRECTIONS = ("up", "down", "left", "right")
_SIZES = (((6, 6), 2, 20), ((8, 8), 5, 50))
"""(room, boxes, turns) from which the random variant draws."""


class Sokoban(Game):
    """Push boxes onto goals; they cannot be pulled, and only one is pushed at a time.

    The reward is 1 when the room is solved. When the turns are used up it is the share of the boxes
    that are on a goal. Rooms are made by `gem_core.envs.games.sokoban_room.make_room`, which plays
    backwards like GEM's generator; they are as difficult as GEM's, and as there, the shortest
    solution of a few rooms is longer than the turn budget.

    Args:
        dim_room: height and width, outer walls included, each from 5 to 16; ``None`` draws room,
            boxes and turns at each reset.
        num_boxes: number of boxes, and of goals, from 1 to 8.
        max_turns: number of moves.
        max_pushes: most pushes, from 1 to 60, that the shortest solution in pushes needs; at least
            one for each box. Few make easy rooms.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _gem_form = "(up|down|left|right)"
    _gem_ignores_case = True
    _state_fields = (*Game._state_fields, "_text", "_width", "_player", "_boxes", "_left")
    _text: str  # the room as shown; cell i is the character 2 * i
    _width: int
    _player: int  # index into the text
    _boxes: int
    _left: int  # boxes that are not on a goal

    def __init__(
        self,
        *,
        dim_room: Sequence[int] | None = (6, 6),
        num_boxes: int | None = 2,
        max_turns: int | None = 20,
        max_pushes: int = MAX_PULLS,
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, **options)
        if dim_room is not None and (
            len(dim_room) != 2 or not all(5 <= side <= 16 for side in dim_room)
        ):
            raise ValueError(f"dim_room must be two numbers from 5 to 16, not {dim_room!r}.")
        if num_boxes is not None and not 1 <= num_boxes <= 8:
            raise ValueError(f"num_boxes must be from 1 to 8, not {num_boxes}.")
        if dim_room is not None and num_boxes is not None and num_boxes > _most_boxes(dim_room):
            raise ValueError(
                f"A room of {dim_room[0]}x{dim_room[1]} has space for at most "
                f"{_most_boxes(dim_room)} boxes, not {num_boxes}."
            )
        if not (num_boxes or _SIZES[-1][1]) <= max_pushes <= MAX_PULLS:
            raise ValueError(
                f"max_pushes must be from the number of boxes to {MAX_PULLS}, not {max_pushes}."
            )
        self.max_pushes = max_pushes
        self.dim_room = dim_room
        self.num_boxes = num_boxes
        self._varies = None in (dim_room, num_boxes, max_turns)

    def _start(self) -> None:
        dim = self.dim_room
        boxes = self.num_boxes
        if dim is None or boxes is None or self.max_turns is None:
            dim, boxes, self._budget = self.rng.choice(_SIZES)
        room = make_room(dim[0], dim[1], boxes, self.rng, self.max_pushes)
        self._text = _draw(room, dim[0])
        self._width = dim[1]
        self._player = 2 * room.player
        self._boxes = boxes
        self._left = boxes

    def _consistent(self) -> bool:
        text = self._text
        lines = [line.split(" ") for line in text.split("\n")]
        edges = [cell for line in lines for cell in (line[0], line[-1])]
        cells = [cell for line in lines for cell in line]
        return (
            super()._consistent()
            and all(len(line) == self._width for line in lines)
            and all(len(cell) == 1 and cell in "#_OX√PS" for cell in cells)
            and all(cell == "#" for cell in (*lines[0], *lines[-1], *edges))
            and cells.count("P") + cells.count("S") == 1
            and 0 <= self._player < len(text)
            and text[self._player] in "PS"
            and self._left == cells.count("X")
            and 0 < self._boxes == self._left + cells.count("√")
        )

    def _rules(self) -> str:
        return (
            "You are playing Sokoban.\n"
            f"Push all {self._boxes} boxes onto goals within {self._budget} turns. You move up, "
            "down, left or right. Moving into a box pushes it one cell further if there is no "
            "wall and no other box behind it. Boxes cannot be pulled. A move that is not possible "
            "uses up a turn.\n"
            "# is a wall, _ floor, O a goal, X a box, √ a box on a goal, P you, S you on a goal.\n"
            f"Write your move like this: {self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        if answer not in _DIRECTIONS:
            answer = answer[:20].lower()
            if answer not in _DIRECTIONS:
                return self._malformed("it is not one of up, down, left and right")
        step = 2 if answer in ("left", "right") else 2 * self._width
        if answer in ("up", "left"):
            step = -step
        text = self._text
        at = self._player
        to = at + step
        entered = text[to]
        if entered == "#":
            return self._invalid("There is a wall.")
        if entered in "_O":
            obs = f"Turn {self._turn}: you moved {answer}."
        else:
            beyond = to + step
            behind = text[beyond]
            if behind not in "_O":
                what = "wall" if behind == "#" else "box"
                return self._invalid(f"The box cannot move, there is a {what} behind it.")
            self._left += (entered == "√") - (behind == "O")
            text = f"{text[:beyond]}{'X' if behind == '_' else '√'}{text[beyond + 1 :]}"
            obs = f"Turn {self._turn}: you moved {answer} and pushed a box."
        # The cell that is left, then the cell that is entered.
        text = f"{text[:at]}{'_' if text[at] == 'P' else 'O'}{text[at + 1 :]}"
        self._text = f"{text[:to]}{'P' if entered in '_X' else 'S'}{text[to + 1 :]}"
        self._player = to
        if not self._left:
            return self._win(
                f"{obs} All boxes are on goals. You have won.", self._reward["success"]
            )
        return self._continue(obs, self._reward["step"])

    def _limit_reward(self, reward: float, valid: bool) -> float:
        return self._reward["success"] * (self._boxes - self._left) / self._boxes

    def _board(self) -> str:
        return f"{self._text}\nEnter your next move."

    def _example(self) -> str:
        return "up"

    def random_action(self, rng: Random) -> str:
        """Return one of the four directions, drawn from ``rng``."""
        return self._answer(_DIRECTIONS[int(rng.random() * 4)])


def _most_boxes(dim: Sequence[int]) -> int:
    """Return the number of boxes that always leave the generator enough space."""
    return max((dim[0] - 2) * (dim[1] - 2) // 6, 1)


def _draw(room: Room, height: int) -> str:
    cells = ["_" if room.floor >> i & 1 else "#" for i in range(height * room.width)]
    for goal in room.goals:
        cells[goal] = "O"
    for box in room.boxes:
        cells[box] = "X"
    cells[room.player] = "P"
    rows = range(0, len(cells), room.width)
    return "\n".join(" ".join(cells[r : r + room.width]) for r in rows)
