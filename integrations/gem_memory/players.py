"""Scripted players of the walks. They sum up what they know, which a warm start imitates."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from gem_core.envs.players import Player
from gem_memory.walk import GO

_TOLD = re.compile(r"([A-Z]) (?:opens with|is put into box) (\d+)\.")
_ASKED = re.compile(r"Door ([A-Z]) asks|box holds parcel ([A-Z])\?")


class Remembers(Player):
    """The expert: keeps every number that is told, the last one of each subject."""

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Know nothing."""
        self.known: dict[str, str] = {}

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Answer with the number that was told last, or go on."""
        stop = f"{obs}\n{info.get('suffix', '')}"
        if told := _TOLD.search(stop):
            self.known[told[1]] = told[2]
        asked = _ASKED.search(stop)
        return self.answer(self.recall(asked[1] or asked[2]) if asked else GO)

    def recall(self, subject: str) -> str:
        """Return the number of a subject.

        Raises:
            GemError: it was never told.
        """
        if subject not in self.known:
            raise self.unreadable(f"a question about {subject}, of which nothing was told")
        return self.known[subject]

    def sum_up(self) -> str:
        """Return what is known, such as ``Known: B 4, K 7.``"""
        known = ", ".join(f"{subject} {number}" for subject, number in self.known.items())
        return f"Known: {known or 'nothing'}."


class Forgets(Remembers):
    """Leaves out of each summary every subject with probability 1/4, and then guesses its number.

    Without summaries it forgets nothing.

    Args:
        rng: the player's own generator.
        answer_format: that of the environment.
        numbers: numbers are from 1 to this one.
    """

    env_options = ("answer_format", "numbers")
    share = 0.25
    """Probability of leaving a subject out of a summary."""

    def __init__(self, rng: Random, answer_format: str = "boxed", numbers: int = 9):
        super().__init__(rng, answer_format)
        self.numbers = numbers

    def recall(self, subject: str) -> str:
        """Return the number of a subject; a random one if it was left out."""
        return self.known.get(subject) or str(self.rng.randint(1, self.numbers))

    def sum_up(self) -> str:
        """Return what is known but for what is forgotten."""
        self.known = {k: v for k, v in self.known.items() if self.rng.random() >= self.share}
        return super().sum_up()


class ForgetsMost(Forgets):
    """As `Forgets`, with probability 3/5: a model that imitates it forgets when played greedily."""

    share = 0.6


PLAYERS = {"expert": Remembers, "forgets": Forgets, "forgets-most": ForgetsMost}
"""Name -> player, for the attribute ``players`` of an environment's class."""
