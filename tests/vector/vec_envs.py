"""Environments whose steps wait, fail or end as their actions say; workers import this file."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gem_core.env.interface import Env

CLOSED: list[bool] = []


class Waits(Env):
    """``sleep SECONDS`` waits, ``fail`` raises, ``quit`` raises ``SystemExit``,
    ``exit`` ends the process; three turns.

    ``until FILE`` waits until there is such a file.

    Args:
        slow: what a subclass promises.
        reset_s: how long a reset sleeps.
        broken_resets: whether every reset but the first one fails.
        closes: whether it can be closed; if not, closing it exits.
        meeting: a directory in which each reset leaves a file; it goes on when there are `at_once`.
        at_once: how many resets must be under way together.
    """

    _state_fields = ("turn",)

    def __init__(
        self,
        slow: bool = True,
        reset_s: float = 0.0,
        broken_resets: bool = False,
        closes: bool = True,
        meeting: str = "",
        at_once: int = 0,
    ):
        self.slow = slow
        self.meeting = meeting
        self.at_once = at_once
        self.reset_s = reset_s
        self.broken_resets = broken_resets
        self.closes = closes
        self.resets = 0

    def _reset(self, options):
        self.resets += 1
        if self.broken_resets and self.resets > 1:
            raise OSError("no second episode")
        time.sleep(self.reset_s)
        if self.meeting:
            self._meet(Path(self.meeting))
        self.turn = 0
        return f"draw {self.rng.random()}", {"options": options} if options else {}

    def _close(self):
        CLOSED.append(self.closes)
        if not self.closes:
            raise SystemExit(5)

    def _meet(self, place):
        (place / str(self.rng.random())).touch()
        while len(list(place.iterdir())) < self.at_once:
            time.sleep(0.01)

    def _step(self, action):
        kind, _, amount = action.partition(" ")
        if kind == "sleep":
            time.sleep(float(amount))
        elif kind == "until":
            while not Path(amount).exists():
                time.sleep(0.01)
        elif kind == "fail":
            raise ValueError("on purpose")
        elif kind == "quit":
            raise SystemExit(4)
        elif kind == "exit":
            os._exit(3)
        self.turn += 1
        over = self.turn == 3
        return f"{action} {self.rng.random()}", self.rng.random(), over, False, {"turn": self.turn}


class Fast(Waits):
    """The same, and it promises not to block."""

    fast = True

    def __init__(self, **named):
        super().__init__(slow=False, **named)
