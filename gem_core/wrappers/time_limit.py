"""A limit on the number of steps that is not part of the task."""

from __future__ import annotations

from gem_core.core import Env, Wrapper
from gem_core.errors import EpisodeStateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gem_core.core import ResetResult, StepResult


class TimeLimit(Wrapper):
    """Cut an episode off after ``max_steps`` steps (``truncated``, ``end="time_limit"``).

    The turn budget of a game is stated in its rules and terminates it. This limit is not part of
    the task, so bootstrapping from the last state is right.
    """

    _state_fields = ("steps",)
    steps: int

    def __init__(self, env: Env, max_steps: int):
        super().__init__(env)
        if max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, not {max_steps}.")
        self.max_steps = max_steps
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> ResetResult:
        """Start an episode and count its steps from 0."""
        self.steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: str) -> StepResult:
        """Play one action; the last allowed action truncates the episode unless it ends it."""
        if self.steps >= self.max_steps:
            raise EpisodeStateError("The episode is over: call reset() before the next step().")
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        if self.steps >= self.max_steps and not (terminated or truncated):
            truncated = True
            info = {"success": False, **info, "end": "time_limit"}
        return obs, reward, terminated, truncated, info
