"""Scripted players of Change. They read what an agent reads: observations and ``info``."""

from __future__ import annotations

import re
from typing import Any

from gem_core.envs.players import Player

from my_envs.coins import largest_coin
from my_envs.tool import LargestCoin

_LEFT = re.compile(r"(\d+) is left to pay")
_NAMED = re.compile(r"The largest coin is (\d+)")


class Pays(Player):
    """Pays with the largest coin that fits: no amount needs fewer coins."""

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Read the amount."""
        found = _LEFT.search(obs)
        if found is None:
            raise self.unreadable(obs)
        self._left = int(found[1])

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Return the next coin."""
        return self.answer(largest_coin(self._read(obs)))

    def _read(self, obs: str) -> int:
        """Return what is left, also after the result of a tool, which does not say it."""
        found = _LEFT.search(obs)
        if found is not None:
            self._left = int(found[1])
        return self._left


class Asks(Pays):
    """Asks the tool before each coin. Without the tool a question is no coin, and costs a turn."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Return a question, and after its answer the coin that was named."""
        left = self._read(obs)
        if "tool" not in info:
            return LargestCoin().write(amount=str(left))
        named = _NAMED.search(obs)
        return self.answer(named[1] if named else largest_coin(left))
