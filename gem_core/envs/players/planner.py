"""The base class of experts that plan a sequence of moves and then follow it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, TypeVar

from gem_core.envs.players.player import Player

Position = TypeVar("Position")


class Planner(Player, Generic[Position]):
    """Follows a plan while the board shows what its moves lead to, and plans again otherwise.

    When the search gives up, any move is played for the rest of the episode.
    """

    version = 1  # 1: reads what was played, instead of its own actions
    moves: tuple[str, ...]
    """What is played without a plan."""

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Forget the plan of the episode before."""
        self.plan: list[str] = []
        self.expected: Position | None = None
        self.gave_up = False

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Play the next move of the plan, or any move when there is no plan."""
        position = self.read(info["suffix"])
        if position != self.expected and not self.gave_up:
            self.plan = self.search(position)
            self.gave_up = not self.plan
        if self.gave_up or not self.plan:
            return self.answer(self.rng.choice(self.moves))
        move = self.plan.pop()
        self.expected = self.after(position, move)
        return self.answer(move)

    @abstractmethod
    def read(self, board: str) -> Position:
        """Return the position that a board shows."""

    @abstractmethod
    def search(self, position: Position) -> list[str]:
        """Return moves to the goal, the last one first; ``[]`` if the search gives up."""

    @abstractmethod
    def after(self, position: Position, move: str) -> Position:
        """Return the position after a possible move."""
