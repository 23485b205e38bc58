"""Environments whose steps wait, fail or end as their actions say; workers import this file."""

from __future__ import annotations

import os
import time

from gem_core.core import Env


class Waits(Env):
    """``sleep SECONDS`` waits, ``fail`` raises, ``exit`` ends the process; three turns."""

    _state_fields = ("turn",)

    def __init__(self, slow: bool = True, reset_s: float = 0.0, broken_resets: bool = False):
        self.slow = slow
        self.reset_s = reset_s
        self.broken_resets = broken_resets
        self.resets = 0

    def _reset(self, options):
        self.resets += 1
        if self.broken_resets and self.resets > 1:
            raise OSError("no second episode")
        time.sleep(self.reset_s)
        self.turn = 0
        return f"draw {self.rng.random()}", {"options": options} if options else {}

    def _step(self, action):
        kind, _, amount = action.partition(" ")
        if kind == "sleep":
            time.sleep(float(amount))
        elif kind == "fail":
            raise ValueError("on purpose")
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
