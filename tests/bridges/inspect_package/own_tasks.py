"""Environments of which the tests know what becomes of them."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any, ClassVar

from gem_core import Env


class Watched(Env):
    """Asks for numbers in their order, three times; the info has a secret."""

    made: ClassVar[list[Watched]] = []
    meeting: ClassVar[threading.Barrier | None] = None

    def __init__(self, faulty_turn: int = -1, fault: str = "") -> None:
        self.faulty_turn = faulty_turn
        self.fault = fault
        self.threads: set[int] = set()
        self.closed = 0
        self.made.append(self)

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        self.turn = 0
        self.number = self.rng.randrange(1000)
        return f"What follows {self.number}?", {"secret": "hidden-in-the-info"}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.threads.add(threading.get_ident())
        if self.meeting is not None:
            self.meeting.wait(timeout=60)
        self.turn += 1
        if self.turn == self.faulty_turn:
            self.fail()
        self.number += 1
        right = action == str(self.number)
        info: dict[str, Any] = {"secret": "hidden-in-the-info", "suffix": f"turn {self.turn}"}
        if not right:
            info["error"] = "invalid_format" if not action else "invalid_action"
        over = self.turn == 3
        if over:
            info["success"] = right
        return f"And {self.number}?", self.turn / 2 if right else -0.25, over, False, info

    def fail(self) -> None:
        raise OSError(self.fault or "the disk is full")

    def _close(self) -> None:
        self.closed += 1


class OnceFaulty(Watched):
    """Fails the first time, not later."""

    failures: ClassVar[Any] = count()

    def fail(self) -> None:
        if next(self.failures) == 0:
            super().fail()


class NoNumber(Watched):
    """A reward that no mean can have."""

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "And?", float("nan"), False, False, {}


class CutOff(Watched):
    """Is cut from outside after a turn."""

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "No time is left.", 0.5, False, True, {}


class Unseeded(Watched):
    """The first observation is another one each time."""

    numbers: ClassVar[Any] = count()

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        return f"Question {next(self.numbers)}", {}
