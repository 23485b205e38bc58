"""The base class of the tasks: a walk of so many stops, of which some tell and some ask."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from gem_core.envs.games.game import Game
from gem_core.envs.games.numbers import parse_int

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult

GO = "go"
"""The answer at a stop that asks nothing."""


class Stop(NamedTuple):
    """A stop of a walk.

    Attributes:
        kind: ``"tells"``, ``"asks"`` or ``"plain"``, where there is nothing.
        subject: what is told or asked about; empty at a plain stop.
        number: what is told, or the right answer; 0 at a plain stop.
    """

    kind: str
    subject: str = ""
    number: int = 0


class Walk(Game):
    """Base class: a walk of ``max_turns`` stops; every answer leads to the next one.

    Each observation ends with the next stop, so that a prompt with earlier observations has what
    they told. The first stop, which is beside the instructions, tells nothing.

    A right number at a stop that asks earns 1 / questions, so that all of them earn 1; the task is
    solved if all are right. At any other stop the answer is ``go``.

    Args:
        subjects: how many things are told and asked about.
        numbers: numbers are from 1 to this one.
        max_turns: stops of the walk.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _state_fields = (*Game._state_fields, "_stops", "_right")
    _stops: list[list[Any]]  # of a `Stop` each, as lists, which JSON keeps
    _right: int
    fast = True
    names = "BCDFGHKLMP"
    """The subjects that a task draws from, a capital letter each."""

    def __init__(self, *, subjects: int, numbers: int, max_turns: int, **options: Any):
        super().__init__(max_turns=max_turns, **options)
        if not 1 <= subjects <= len(self.names):
            raise ValueError(
                f"There can be 1 to {len(self.names)} doors or parcels, not {subjects}."
            )
        if numbers < 2:
            raise ValueError(f"numbers must be at least 2, not {numbers}.")
        if max_turns < 4 * subjects:
            raise ValueError(
                f"max_turns must be at least four times as many ({4 * subjects}), not {max_turns}: "
                "between what is told and what is asked there is a way without either."
            )
        self.subjects = subjects
        self.numbers = numbers
        self.turns = max_turns

    @abstractmethod
    def _draw(self) -> list[Stop]:
        """Draw the stops of a walk, ``self.turns`` of them."""

    @abstractmethod
    def _show(self, stop: Stop) -> str:
        """Return the text of a stop, without its number."""

    def _start(self) -> None:
        self._stops = [list(stop) for stop in self._draw()]
        self._right = 0

    def _consistent(self) -> bool:
        walk = len(self._stops) == self.turns == self._budget
        right = 0 <= self._right <= self.subjects
        return super()._consistent() and walk and right and all(map(self._is_stop, self._stops))

    def _is_stop(self, item: list[Any]) -> bool:
        """Return whether an item of a state, which may be a client's, is a stop of such a walk."""
        if len(item) != 3:
            return False
        kind, subject, number = item
        if kind == "plain":
            return (subject, number) == ("", 0)
        named = isinstance(subject, str) and len(subject) == 1 and subject in self.names
        whole = type(number) is int and 1 <= number <= self.numbers
        return kind in ("tells", "asks") and named and whole

    def _board(self) -> str:
        if self._turn >= self.turns:
            return "The walk is over."
        return f"Stop {self._turn + 1}. {self._show(Stop(*self._stops[self._turn]))}"

    def _step(self, action: str) -> StepResult:
        obs, reward, terminated, truncated, info = super()._step(action)
        return f"{obs}\n{info.pop('suffix')}", reward, terminated, truncated, info

    def _move(self, answer: str) -> StepResult:
        stop = Stop(*self._stops[self._turn - 1])
        if stop.kind == "asks":
            number = parse_int(answer)
            if number is None:
                return self._malformed("it is not a whole number")
            right = number == stop.number
            self._right += right
            return self._go_on("Right." if right else "Wrong.", right / self.subjects)
        if answer.strip().lower() != GO:
            return self._go_on(f"Nothing was asked: the answer is {GO}.", 0.0)
        return self._go_on("You went on.", 0.0)

    def _go_on(self, obs: str, share: float) -> StepResult:
        """Return the result of an answer, which earns a share of the reward of success."""
        reward = self._reward["success"] * share if share else self._reward["step"]
        if self._turn < self.turns:
            return obs, reward, False, False, {"suffix": self._board()}
        if self._right == self.subjects:
            return self._win(obs, reward)
        return self._lose(obs, reward + self._reward["fail"], "wrong_answers")

    def _scatter(self, stops: list[Stop], first: int, last: int) -> list[Stop]:
        """Return a walk with stops at random places from ``first`` to below ``last``, in their
        order; the others are plain."""
        walk = [Stop("plain")] * self.turns
        places = sorted(self.rng.sample(range(first, last), len(stops)))
        for place, stop in zip(places, stops, strict=True):
            walk[place] = stop
        return walk

    def _example(self) -> str:
        return GO

    def random_action(self, rng: Random) -> str:
        """Return a random number where one is asked for, ``go`` elsewhere."""
        asked = self._turn < self.turns and self._stops[self._turn][0] == "asks"
        return self._answer(str(rng.randint(1, self.numbers)) if asked else GO)
