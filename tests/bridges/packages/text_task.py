"""Environments as users of Gymnasium write them, and an opponent for TextArena."""

from __future__ import annotations

import random
from typing import Any

import gymnasium
from gymnasium import spaces


class Echo(gymnasium.Env):
    """Repeat the letter; three turns."""

    observation_space = spaces.Text(200)
    action_space = spaces.Text(200)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict]:
        super().reset(seed=seed)
        self.letter = "abcdef"[int(self.np_random.integers(6))]
        self.turns = 0
        return f"Write the letter {self.letter}.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict]:
        self.turns += 1
        right = self.letter in action
        info = {"success": right}
        return "Right." if right else "Wrong.", float(right), right, self.turns == 3, info


class Careless(Echo):
    """Forgets its seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict]:
        super().reset()
        return f"{self.letter} {random.SystemRandom().random()}", {}


class Numbers(gymnasium.Env):
    observation_space = spaces.Box(0, 1)
    action_space = spaces.Discrete(2)


gymnasium.register("Echo-v0", "text_task:Echo")
gymnasium.register("Careless-v0", "text_task:Careless")
gymnasium.register("Numbers-v0", "text_task:Numbers")


def first_free(observation: str, rng: random.Random) -> str:
    """Play TicTacToe: any cell."""
    return f"[{rng.randint(0, 8)}]"
