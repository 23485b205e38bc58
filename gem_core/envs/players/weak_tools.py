"""Weak players of questions with a tool: they have the forms of calls, and not when to call what.

Each reads only what the observation shows. `NumberShown` is a habit as well: it answers without the
tool, so that it is wrong until a tool's result shows the answer.
"""

from __future__ import annotations

import re
from typing import Any

from gem_core.envs.players.player import Player
from gem_core.envs.players.tool_users import ToolUser

_NUMBER = re.compile(r"\d+")
_OPERANDS = re.compile(r"(\d+) [*]{1,2} (\d+)(?: modulo (\d+))?")
_SIGNS = ("+", "-", "*", "**")
_DIVISIONS = ("//", "%")
_FOLDS = ("sum", "max", "min")
_NOUNS = ("entry", "account")


class NumberShown(Player):
    """Answers the last number that it is shown: a number of the question, or of a tool's result."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Answer the last number, 0 if there is none."""
        return self.answer(last_number(obs))


class AnyFormula(ToolUser):
    """Has Python compute some formula of the question's numbers, and answers what it prints.

    It draws the operations: for a remainder a sign of the product and a division, for digits what
    is done with the digits and the sign of the power. One of them all is right.
    """

    tool = "python"

    def call(self, question: str) -> dict[str, Any]:
        """Return a program of the expert's form with operations that are drawn."""
        match = self.find(_OPERANDS, question)
        first, second, divisor = match.groups()
        if divisor is None:
            fold, sign = self.rng.choice(_FOLDS), self.rng.choice(_SIGNS[2:])
            return {"code": f"print({fold}(map(int,str({first}{sign}{second}))))"}
        sign, division = self.rng.choice(_SIGNS[:3]), self.rng.choice(_DIVISIONS)
        return {"code": f"print({first}{sign}{second}{division}{divisor})"}

    def read(self, result: str) -> str:
        """Return the number that was printed."""
        return last_number(result)


class AnyStep(ToolUser):
    """Searches for the last number that it is shown as an entry or as an account, or answers it.

    Each of the three is as likely as the others, whatever was found before.
    """

    tool = "search"

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Draw one of the three actions."""
        number = last_number(obs)
        noun = self.rng.choice((*_NOUNS, None))
        if noun is None:
            return self.answer(number)
        return str(self._tool.write(query=f"{noun} {number}"))


def last_number(text: str) -> str:
    """Return the last whole number of a text, ``"0"`` if there is none.

    >>> last_number("[1] Lot 1049: A sea chart, sold for 798 crowns.")
    '798'
    """
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else "0"
