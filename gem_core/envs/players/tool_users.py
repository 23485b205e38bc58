"""Experts that need a tool: they read the question and the tool's result, nothing else."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from gem_core.env.interface import Env
from gem_core.envs.players.player import Player
from gem_core.errors import GemError

_PRODUCT = re.compile(r"What is (\d+) \* (\d+) modulo (\d+)\?")
_POWER = re.compile(r"sum of the digits of (\d+) \*\* (\d+)\?")
_LOT = re.compile(r"What was lot (\d+) sold for\?")
_PRICE = re.compile(r"sold for (\d+) crowns")
_ENTRY = re.compile(r"the account that paid entry (\d+)\?")
_ACCOUNT = re.compile(r"paid by account (\d+)\.")
_NUMBER = re.compile(r"\d+")
_AMOUNT = re.compile(r"holds (\d+) crowns")


class MissingToolError(GemError):
    """The environment lacks the tool of a player that uses one."""


class ToolUser(Player):
    """Calls a tool once, and answers what the result says.

    Args:
        rng: the player's own generator.
        env: the environment, with the tool.
        answer_format: the format of answers.
    """

    tool: str
    asks: re.Pattern[str]
    """What the question has, for the call."""
    form: str
    """The main argument of the call, with ``{}`` for each group of `asks`."""
    tells: re.Pattern[str]
    """Its last group (or match, without groups) in the result is the answer."""

    def __init__(self, rng: Random, env: Env, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)
        tools = getattr(env, "tools", {})
        if self.tool not in tools:
            raise MissingToolError(
                f"{type(self).__name__} plays with the tool {self.tool!r}, which the environment "
                f"has not: give it tools = [{self.tool!r}]."
            )
        self._tool = tools[self.tool]
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
        match = self.find(self.asks, question)
        return {self._tool.main_argument: self.form.format(*match.groups())}

    def read(self, result: str) -> str:
        """Return the answer in a result."""
        return self.find(self.tells, result)[self.tells.groups]


class Calculates(ToolUser):
    """Computes the remainder of a product with Python."""

    tool = "python"
    asks = _PRODUCT
    form = "print({}*{}%{})"
    tells = _NUMBER


class AddsDigits(Calculates):
    """Computes the sum of the digits of a power with Python."""

    asks = _POWER
    form = "print(sum(map(int,str({}**{}))))"


class LooksUp(ToolUser):
    """Searches for the lot of the question and answers its price."""

    tool = "search"
    asks = _LOT
    form = "lot {}"
    tells = _PRICE


class FollowsLedger(ToolUser):
    """Searches for the entry of the question, then for the account that the entry names.

    It answers only the amount of that account: after another search it goes on where it was.
    """

    tool = "search"

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Remember the question; no account is known yet."""
        super().reset(obs, info)
        self._account = ""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Return the next search, or the amount of the account."""
        match = self.find(_ENTRY, self._question)
        found = _ACCOUNT.search(obs) if f"Entry {match[1]}:" in obs else None
        self._account = found[1] if found else self._account
        amount = _AMOUNT.search(obs) if f"Account {self._account}:" in obs else None
        if amount is not None:
            return self.answer(amount[1])
        words = f"account {self._account}" if self._account else f"entry {match[1]}"
        return str(self._tool.write(query=words))
