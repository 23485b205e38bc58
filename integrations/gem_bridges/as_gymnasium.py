"""An environment of gem-core as one of Gymnasium."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

from gem_core.env.interface import Env
from gem_core.env.registration import make


class AnyText(spaces.Space[str]):
    """Every string. Gymnasium's ``Text`` has a limited alphabet and length."""

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__((), str, seed)

    def sample(self, mask: None = None, probability: None = None) -> str:
        """Return a short random string of printable characters."""
        codes = self.np_random.integers(32, 127, size=int(self.np_random.integers(0, 20)))
        return "".join(chr(code) for code in codes)

    def contains(self, x: Any) -> bool:
        """Return whether it is a string."""
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        """False: text has no fixed length."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText)

    def __repr__(self) -> str:
        return "AnyText()"


class GymnasiumTask(gymnasium.Env[str, str]):
    """An environment of gem-core for programs that expect Gymnasium's.

    The episodes are those of the environment: ``reset(seed=...)`` hands the seed over. A board in
    ``info["suffix"]`` is part of the observation, because Gymnasium's programs do not look for one.

    Args:
        env: an id of `gem_core.make`, or an environment.
        **kwargs: parameters, with an id.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"]}  # noqa: RUF012
    render_mode = "ansi"

    def __init__(self, env: str | Env, **kwargs: Any) -> None:
        self.env = make(env, **kwargs) if isinstance(env, str) else env
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._shown = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        # Gymnasium promises that resets without a seed follow from the last one with a seed.
        observation, info = self.env.reset(seed=seed, options=options)
        return self._show(observation, info), info

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """Play an action."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._show(observation, info), reward, terminated, truncated, info

    def render(self) -> str:
        """Return the last observation."""
        return self._shown

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _show(self, observation: str, info: dict[str, Any]) -> str:
        parts = [observation, str(info.get("suffix", ""))]
        self._shown = "\n".join(part for part in parts if part)
        return self._shown
