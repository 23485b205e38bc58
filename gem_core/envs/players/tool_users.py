"""Experts that need a tool: they read the question and the tool's result, nothing else."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from gem_core.env.interface import Env
from gem_core.envs.players.player import Player

_PRODUCT = re.compile(r"What is (\d+) \* (\d+) modulo (\d+)\?")
_LOT = re.compile(r"What was lot (\d+) sold for\?")
_PRICE = re.compile(r"sold for (\d+) crowns")


class ToolUser(Player):
    """Calls a tool once, and answers what the result says.

    Args:
        rng: the player's own generator.
        env: the environment, with the tool.
        answer_format: the format of answers.
    """

    tool: str

    def __init__(self, rng: Random, env: Env, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)
        self._tool = env.tools[self.tool]  # type: ignore[attr-defined]
        self._question = ""

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Remember the question."""
        self._question = obs

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Return a call, and after a call that succeeded the answer."""
        if info.get("tool", {}).get("ok"):
            return self.answer(self.read(obs))
        return str(self._tool.write(**self.call(self._question)))

    def call(self, question: str) -> dict[str, Any]:
        """Return the arguments of the call."""
        raise NotImplementedError

    def read(self, result: str) -> str:
        """Return the answer in a result."""
        raise NotImplementedError


class Calculates(ToolUser):
    """Computes the remainder of a product with Python."""

    tool = "python"

    def call(self, question: str) -> dict[str, Any]:
        """Return a program that prints the remainder."""
        match = _PRODUCT.search(question)
        if match is None:
            raise self.unreadable(question)
        return {"code": f"print({match[1]}*{match[2]}%{match[3]})"}

    def read(self, result: str) -> str:
        """Return the number that was printed."""
        match = re.search(r"\d+", result)
        if match is None:
            raise self.unreadable(result)
        return match[0]


class LooksUp(ToolUser):
    """Searches for the lot of the question."""

    tool = "search"

    def call(self, question: str) -> dict[str, Any]:
        """Return the words to search for."""
        match = _LOT.search(question)
        if match is None:
            raise self.unreadable(question)
        return {"query": f"lot {match[1]}"}

    def read(self, result: str) -> str:
        """Return the price."""
        match = _PRICE.search(result)
        if match is None:
            raise self.unreadable(result)
        return match[1]
