"""Tower of Hanoi: move a tower of disks from peg A to peg C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.envs.games.game import Game

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult

_SIZES = ((3, 10), (4, 20), (5, 35))
"""(disks, turns) from which the random variant draws."""
_MOVES = {f"{a}{b}": (i, j) for i, a in enumerate("ABC") for j, b in enumerate("ABC")}
_SPACED = {f"{a[0]} {a[1]}": move for a, move in _MOVES.items()}
_SEPARATORS = str.maketrans("", "", " ,->\t\n")


class TowerOfHanoi(Game):
    """Move all disks to peg C, one at a time, never a larger one onto a smaller one.

    The reward is 1 when the tower is on C. When the turns are used up it is the share of the disks
    on C. With ``compat="gem-0.1.0"`` a disk may be moved to the peg that it is on.

    Args:
        num_disks: from 1 to 9; ``None`` draws disks and turns at each reset.
        max_turns: number of moves.
        start: ``"A"``: all disks are on A, so that every episode is the same. ``"random"``: every
            disk is on a random peg (but never all of them on C).
        moves_left: every disk has a random peg as its goal, which the board shows, and ``start``
            has no effect: a start is made of the goal by so many moves, of which none takes the
            disk that was moved last. ``None``: the goal is the tower on C.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _gem_form = r"([ABCabc])(?:\s*,)?\s*([ABCabc])"
    _state_fields = (*Game._state_fields, "_pegs", "_disks")
    _pegs: list[str]  # the disks of each peg from below, one digit each
    _disks: int
    _goal: str | None = None  # the peg of each disk, the smallest first; None: all on C

    def __init__(
        self,
        *,
        num_disks: int | None = 3,
        max_turns: int | None = 10,
        start: str = "A",
        moves_left: int | None = None,
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, **options)
        if moves_left is not None and not 1 <= moves_left <= 20:
            raise ValueError(f"moves_left must be from 1 to 20, not {moves_left}.")
        if moves_left is not None:
            self._state_fields = (*self._state_fields, "_goal")
        self.moves_left = moves_left
        if num_disks is not None and not 1 <= num_disks <= 9:
            raise ValueError(f"num_disks must be from 1 to 9, not {num_disks}.")
        if start not in ("A", "random"):
            raise ValueError(f"start must be 'A' or 'random', not {start!r}.")
        self.num_disks = num_disks
        self.start = start
        self._varies = num_disks is None or max_turns is None

    def _start(self) -> None:
        if self.num_disks is None or self.max_turns is None:
            self._disks, self._budget = self.rng.choice(_SIZES)
        else:
            self._disks = self.num_disks
        tower = "987654321"[-self._disks :]
        self._pegs = [tower, "", ""]
        while self.start == "random":
            self._pegs = ["", "", ""]
            for disk in tower:
                self._pegs[int(self.rng.random() * 3)] += disk
            if self._pegs[2] != tower:
                break
        if self.moves_left is not None:
            self._start_near_goal(tower, self.moves_left)

    def _start_near_goal(self, tower: str, moves: int) -> None:
        """Draw where the disks have to go, then move them away from there."""
        pegs = ["", "", ""]
        for disk in tower:
            pegs[int(self.rng.random() * 3)] += disk
        self._goal = _places(pegs)
        while _places(pegs) == self._goal:  # many moves may lead back
            last = ""
            for _ in range(moves):
                source, target = self.rng.choice(_possible(pegs, last) or _possible(pegs, ""))
                last = pegs[source][-1]
                pegs[source] = pegs[source][:-1]
                pegs[target] += last
        self._pegs = pegs

    def _consistent(self) -> bool:
        pegs = self._pegs
        return (
            super()._consistent()
            and 1 <= self._disks <= 9
            and len(pegs) == 3
            and sorted("".join(pegs)) == list("123456789"[: self._disks])
            and all(list(peg) == sorted(peg, reverse=True) for peg in pegs)
            and (self._goal is None or len(self._goal) == self._disks)
            and set(self._goal or "C") <= set("ABC")
        )

    def _rules(self) -> str:
        goal = "all disks to peg C" if self.moves_left is None else "each disk to its goal"
        return (
            f"You are playing Tower of Hanoi with {self._disks} disks on three pegs, A, B and C. "
            "Disk 1 is the smallest.\n"
            f"Bring {goal} within {self._budget} turns. A move takes the top disk of "
            "one peg and puts it on another peg. A disk must not lie on a smaller one.\n"
            "Write your move like this, first the peg to take from, then the peg to put on: "
            f"{self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        move = _SPACED.get(answer)
        if move is None:
            move = _MOVES.get(answer[:100].upper().translate(_SEPARATORS))
            if move is None or len(answer) > 100:
                return self._malformed("it does not name two of the pegs A, B and C")
        source, target = move
        pegs = self._pegs
        top = pegs[source]
        base = pegs[target]
        if not top:
            return self._invalid(f"Peg {'ABC'[source]} is empty.")
        disk = top[-1]
        if source != target:
            if base and base[-1] < disk:
                return self._invalid(
                    f"Disk {disk} is larger than disk {base[-1]}, the top disk of peg "
                    f"{'ABC'[target]}."
                )
            pegs[source] = top[:-1]
            pegs[target] = base + disk
        elif not self.compat:
            return self._invalid("Name two different pegs.")
        obs = f"Turn {self._turn}: disk {disk} moved from {'ABC'[source]} to {'ABC'[target]}."
        if self._right() == self._disks:
            where = "on C" if self._goal is None else "where they have to be"
            return self._win(f"{obs} All disks are {where}. You have won.", self._reward["success"])
        return self._continue(obs, self._reward["step"])

    def _limit_reward(self, reward: float, valid: bool) -> float:
        return self._reward["success"] * self._right() / self._disks

    def _right(self) -> int:
        """Return the number of disks that are on the peg of their goal."""
        if self._goal is None:
            return len(self._pegs[2])
        return sum(map(str.__eq__, _places(self._pegs), self._goal))

    def _board(self) -> str:
        a, b, c = self._pegs
        return (
            "The disks on each peg, bottom to top:\n"
            f"A: {' '.join(a or '-')}\nB: {' '.join(b or '-')}\nC: {' '.join(c or '-')}\n"
            f"{self._goals()}"
            "Enter your next move."
        )

    def _goals(self) -> str:
        if self._goal is None:
            return ""
        lines = [
            f"{disk}: {peg} {goal}"
            for disk, (peg, goal) in enumerate(zip(_places(self._pegs), self._goal, strict=True), 1)
        ]
        return "\n".join(["Where each disk is, and its goal:", *lines, ""])

    def _example(self) -> str:
        return "A B"

    def random_action(self, rng: Random) -> str:
        """Return a move between two different pegs, drawn from ``rng``."""
        source, target = rng.sample("ABC", 2)
        return self._answer(f"{source} {target}")


def _places(pegs: list[str]) -> str:
    """Return the peg of each disk, the smallest disk first."""
    where = {disk: name for name, peg in zip("ABC", pegs, strict=True) for disk in peg}
    return "".join(where[disk] for disk in sorted(where))


def _possible(pegs: list[str], last: str) -> list[tuple[int, int]]:
    """Return the moves (from, to) of any disk but ``last``."""
    tops = [peg[-1:] or "~" for peg in pegs]  # "~" is after every digit
    return [(i, j) for i, a in enumerate(tops) for j, b in enumerate(tops) if a < b and a != last]
