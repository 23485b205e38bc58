"""An environment that waits as a tool, a service or a sandbox does; workers import this file."""

from __future__ import annotations

import time
from typing import Any

from gem_core.env.interface import Env

ID = "bench:Waiting-v0"
MEDIAN_S = 0.05
SIGMA = 1.0
"""Of the logarithm: one call in forty takes more than seven times the median."""


class Waiting(Env):
    """Waits in each step for a time with a heavy tail; its seed decides how often it answers."""

    slow = True
    _state_fields = ("turn", "turns")

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        self.turn = 0
        self.turns = self.rng.randint(2, 6)
        return "Begin.", {}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        time.sleep(MEDIAN_S * self.rng.lognormvariate(0.0, SIGMA))
        self.turn += 1
        over = self.turn == self.turns
        return f"Turn {self.turn}.", 0.0, over, False, {"success": True} if over else {}
