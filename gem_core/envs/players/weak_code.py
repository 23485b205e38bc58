"""Weak players of the programs of this project: right in form and number, wrong in what they do.

Each reads only the question. The programs have the form of the samples' solutions.
"""

from __future__ import annotations

import re
from typing import Any

from gem_core.envs.players.player import Player

_FORMULA = re.compile(r"Print n (?:plus|minus|times) (\d+)\.")
_LIST = re.compile(r"of the (?:first|last) (\d+)\.")
_SIGNS = ("+", "-", "*")
_FOLDS = ("sum({})", "max({})", "min({})", "sorted({})[-2]", "sorted({})[1]")
_PARTS = ("a[:{}]", "a[-{}:]")


class CodePlayer(Player):
    """Writes one program for the question."""

    env_options = ()

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Return the program in a fenced block.

        Raises:
            GemError: the question is of another data set.
        """
        formula = _FORMULA.search(obs)
        if formula is not None:
            program = f"n = int(input())\nprint({self.formula(formula[1])})"
        else:
            part = self.find(_LIST, obs)
            program = f"a = list(map(int, input().split()))\nprint({self.fold(part[1])})"
        return f"```python\n{program}\n```"

    def formula(self, number: str) -> str:
        """Return an expression of ``n`` for a question about a formula."""
        raise NotImplementedError

    def fold(self, number: str) -> str:
        """Return an expression of ``a`` for a question about a list."""
        raise NotImplementedError


class AnyOperation(CodePlayer):
    """Takes the number of the question, and draws the operation and the part of the list."""

    def formula(self, number: str) -> str:
        """Return ``n``, one of three signs, and the number."""
        return f"n {self.rng.choice(_SIGNS)} {number}"

    def fold(self, number: str) -> str:
        """Return one of five operations on one of two parts."""
        return self.rng.choice(_FOLDS).format(self.rng.choice(_PARTS).format(number))


class PrintsInput(CodePlayer):
    """Prints the number that it reads, or the first of the list."""

    def formula(self, number: str) -> str:
        """Return ``n``."""
        return "n"

    def fold(self, number: str) -> str:
        """Return the first number of the list."""
        return "a[0]"
