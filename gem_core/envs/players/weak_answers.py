"""Weak players of questions: answers that are read off the question by an easy wrong strategy.

Each is a function of the question alone, so that one that is the habit of a start
(``model.tiny.habit``) is also what the start answers when it is played greedily.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Any

from gem_core.envs.players.player import Player

_NUMBER = re.compile(r"(?<![\w.])-?\d+")
_ROW = re.compile(r"Input:\n([\d ]+)")
_TEXT = re.compile(r'letter "(\w)" appear in the text: "(.*)"')


class ReadsOff(Player):
    """Base class: the answer is read off the first observation."""

    question = ""

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Keep the question."""
        self.question = obs

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Return the answer that the strategy reads off the question.

        Raises:
            GemError: the question does not have what it reads.
        """
        return self.answer(self.read(self.question))

    @abstractmethod
    def read(self, question: str) -> str:
        """Return the answer to a question, without the answer format."""

    def numbers(self, question: str) -> list[str]:
        """Return the numbers of a question in their order; there is at least one."""
        found = _NUMBER.findall(question)
        if not found:
            raise self.unreadable(question)
        return found


class FirstNumber(ReadsOff):
    """Answers with the first number of the question: the first term, the count of an animal."""

    def read(self, question: str) -> str:
        """Return the first number."""
        return self.numbers(question)[0]


class LastNumber(ReadsOff):
    """Answers with the last number of the question: the last term, the right side."""

    def read(self, question: str) -> str:
        """Return the last number."""
        return self.numbers(question)[-1]


class CopiesInput(ReadsOff):
    """Answers with the last input row of ``rg:arc_1d`` as it is: the rule is not applied."""

    def read(self, question: str) -> str:
        """Return the row of the test."""
        rows = _ROW.findall(question)
        if not rows:
            raise self.unreadable(question)
        return str(rows[-1]).strip()


class FirstWord(ReadsOff):
    """Counts the letter of ``rg:letter_counting`` in the first word of the text only."""

    def read(self, question: str) -> str:
        """Return how often the letter is in the first word."""
        found = self.find(_TEXT, question)
        return str(found[2].split()[0].lower().count(found[1]))
