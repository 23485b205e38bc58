"""Gymnasium's text environments: ``gymnasium:<id>``, such as ``gymnasium:my_module:Task-v0``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from gem_bridges.foreign import ForeignEnv
from gem_core.env.registration.references import check_module
from gem_core.errors import RecipeError

if TYPE_CHECKING:
    from gem_core.env.interface import Info, StepResult

_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_BACKGROUND = re.compile("\x1b\\[4[0-7]m(.*?)\x1b\\[0m")
_ESCAPE = re.compile("\x1b\\[[0-9;]*m")


class GymnasiumEnv(ForeignEnv):
    """An environment of Gymnasium whose observations are text, or that renders as text.

    Actions of a ``Discrete`` space are numbers or the names in ``actions``, in the last
    ``\\boxed{}`` or alone in the text; another action is not played and changes nothing. Actions of
    any other space of strings are passed on as they are.

    Args:
        name: Gymnasium's id, with the module that registers it in front: ``module:Id-v0``.
        actions: names of the actions of a ``Discrete`` space, in their order.
        rules: text in front of the first observation.
        success_reward: the last reward from which on an episode is a success, where
            ``info["success"]`` and ``info["is_success"]`` do not tell. Unset: such episodes are
            never successes.
        **kwargs: parameters of the environment. With ``render_mode = "ansi"`` its pictures are the
            observations.

    Raises:
        MissingDependencyError: ``gymnasium`` is not installed.
        RecipeError: observations or actions have no text.
    """

    distribution = "gymnasium"

    def __init__(
        self,
        name: str,
        *,
        actions: Sequence[str] | None = None,
        rules: str = "",
        success_reward: float | None = None,
        **kwargs: Any,
    ) -> None:
        module, _, rest = name.rpartition(":")
        if rest and module:
            check_module(module, f"gymnasium:{name}")
        self.actions = None if actions is None else [str(action) for action in actions]
        self.rules = rules
        self.success_reward = success_reward
        self.rendered = kwargs.get("render_mode") == "ansi"
        super().__init__(name, **kwargs)
        self._arguments.update(actions=actions, rules=rules, success_reward=success_reward)

    def random_action(self, rng: Random) -> str:
        """Return a random action of the space, drawn from ``rng``."""
        space = self._made.action_space
        if self._discrete:
            number = rng.randrange(int(space.n))
            text = str(number + int(space.start)) if self.actions is None else self.actions[number]
            return f"\\boxed{{{text}}}"
        space.seed(rng.getrandbits(31))
        return str(space.sample())

    def _make(self) -> Any:
        from gymnasium import make, spaces

        env = make(self.name, **self.kwargs)
        self._discrete = isinstance(env.action_space, spaces.Discrete)
        if not self._discrete and not _is_text(env.action_space):
            raise RecipeError(
                f"{self.name} has the actions {env.action_space}: text and Discrete can be played. "
                "Put a wrapper around it that takes text."
            )
        if self._discrete and self.actions and len(self.actions) != int(env.action_space.n):
            raise RecipeError(f"{self.name} has {int(env.action_space.n)} actions: name all.")
        if not self.rendered and not _is_text(env.observation_space):
            raise RecipeError(
                f'{self.name} shows {env.observation_space}: set render_mode = "ansi" if it has '
                "that, or put a wrapper around it that gives text."
            )
        return env

    def _foreign_reset(self, seed: int, options: dict[str, Any] | None) -> tuple[str, Info]:
        observation, info = self._made.reset(seed=seed, options=options)
        return self.rules + self._text(observation), _plain(info)

    def _foreign_step(self, action: str) -> StepResult:
        played: Any = self._number(action) if self._discrete else action
        if played is None:
            shown = "That is not an action. " + self._choices()
            return shown, 0.0, False, False, {"error": "invalid_action"}
        observation, reward, terminated, truncated, raw = self._made.step(played)
        info = _plain(raw)
        if terminated or truncated:
            info["success"] = self._success(info, float(reward), bool(terminated))
        return self._text(observation), float(reward), bool(terminated), bool(truncated), info

    def _foreign_close(self) -> None:
        self._made.close()

    def _text(self, observation: Any) -> str:
        return plain_text(str(self._made.render())) if self.rendered else str(observation)

    def _number(self, action: str) -> int | None:
        boxed = _BOXED.findall(action)
        text = (boxed[-1] if boxed else action).strip()
        space = self._made.action_space
        start = int(space.start)
        if self.actions is not None:
            names = [name.lower() for name in self.actions]
            return names.index(text.lower()) + start if text.lower() in names else None
        if not re.fullmatch(r"-?[0-9]{1,9}", text):
            return None
        number = int(text)
        return number if start <= number < start + int(space.n) else None

    def _choices(self) -> str:
        space = self._made.action_space
        first = int(space.start)
        names = self.actions or [f"{first} to {first + int(space.n) - 1}"]
        return f"Actions: {', '.join(names)}, in \\boxed{{}}."

    def _success(self, info: Info, reward: float, terminated: bool) -> bool:
        for name in ("success", "is_success"):
            if name in info:
                return bool(info[name])
        return self.success_reward is not None and terminated and reward >= self.success_reward


def plain_text(rendered: str) -> str:
    """Replace the colours of a terminal: what has a coloured background gets brackets.

    >>> plain_text("\\x1b[41mS\\x1b[0mFF")
    '[S]FF'
    """
    return _ESCAPE.sub("", _BACKGROUND.sub(r"[\1]", rendered))


def _is_text(space: Any) -> bool:
    from gymnasium import spaces

    return isinstance(space, spaces.Text) or isinstance(space.sample(), str)


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in which numpy's numbers are Python's."""
    return {
        str(key): value.item() if isinstance(value, np.generic) else value
        for key, value in info.items()
    }
