"""An environment that counts how many of it are open, and that hangs or fails on request."""

from __future__ import annotations

import time
from random import Random
from typing import Any

from gem_core.env.interface import Env

OPEN: set[int] = set()


class Ends(BaseException):
    """What a foreign package may raise where it should raise an error."""


class WatchedEnv(Env):
    slow = True
    stays = False

    def __init__(self, quits: bool = False) -> None:
        if quits:
            raise SystemExit(3)
        OPEN.add(id(self))

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        return "ready", {}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "hang":
            time.sleep(3)
        if action == "fail":
            raise ZeroDivisionError("on request")
        if action == "quit":
            raise SystemExit(3)
        if action == "end":
            raise Ends("on request")
        if action == "stay":
            self.stays = True
        return action, 0.0, False, False, {}

    def _close(self) -> None:
        OPEN.discard(id(self))
        if self.stays:
            raise SystemExit(4)

    def get_state(self) -> dict[str, Any]:
        raise Ends("no state")

    def random_action(self, rng: Random) -> str:
        return str(rng.random())
