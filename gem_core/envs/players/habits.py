"""Habits: the one action that a start plays where it does not play its teacher's.

A habit plays the same action in every position, or one that is read off it without skill, so that a
policy in which it is the likeliest action is a weak player when it is played greedily.
"""

from __future__ import annotations

from typing import Any

from gem_core.envs.players.guess_the_number import BinarySearch


class LowestLeft(BinarySearch):
    """Guesses the smallest number that the hints leave: linear search."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Narrow the range by the hint, then play its lower end."""
        super().act(obs, info)
        return self.answer(self.low)
