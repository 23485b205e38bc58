"""An environment that counts how many of it are open, and that hangs or fails on request."""

from __future__ import annotations

import time
from random import Random
from typing import Any

from gem_core.core import Env

OPEN: set[int] = set()


class WatchedEnv(Env):
    slow = True

    def __init__(self) -> None:
        OPEN.add(id(self))

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        return "ready", {}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "hang":
            time.sleep(3)
        if action == "fail":
            raise ZeroDivisionError("on request")
        return action, 0.0, False, False, {}

    def _close(self) -> None:
        OPEN.discard(id(self))

    def random_action(self, rng: Random) -> str:
        return str(rng.random())
