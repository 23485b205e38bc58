"""The environment under test, its traces, and the error of a check that fails."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection
from os.path import commonprefix
from typing import Any

from gem_core.env.interface import Env
from gem_core.errors import GemError, error_line, place_of

Trace = list[Any]
_BEFORE = 40
"""Characters that are shown before the first one that differs."""


class EnvCheckError(GemError, AssertionError):
    """A property that an environment does not have. ``check`` is the name of the property."""

    def __init__(self, check: str, message: str):
        super().__init__(f"[{check}] {message}")
        self.check = check


class Subject:
    """The environment under test: how to make an instance, and how long to play; see `check_env`.

    Attributes:
        name: the environment in error messages; set by the first check.
        check: the name of the check that runs.
        noted: what was found that is no fault.
    """

    def __init__(self, factory: Callable[[], Env], seeds: Collection[int], steps: int):
        self.factory = factory
        self.seeds = tuple(seeds)
        self.steps = steps
        self.name = "?"
        self.check = ""
        self.noted: list[str] = []

    def make(self) -> Env:
        """Return a new environment."""
        return self.factory()

    def fail(self, message: str) -> EnvCheckError:
        """Build the error of the check that runs."""
        return EnvCheckError(self.check, f"{self.name}: {message}")


def shown(error: BaseException) -> str:
    """Return an exception of an environment for the message of a check."""
    return f"{error_line(error):.300}{place_of(error)}"


def trace(env: Env, seed: int, steps: int, pause: Callable[[], None] | None = None) -> Trace:
    """Play random actions and return all that the environment returned, as JSON data.

    Args:
        env: the environment; a finished episode is followed by the next one.
        seed: seed of the environment and of the actions.
        steps: number of actions.
        pause: called after each step.
    """
    chooser = random.Random(seed)
    results: Trace = [as_json(env.reset(seed=seed))]
    for _ in range(steps):
        results.append(advance(env, chooser))
        if pause is not None:
            pause()
    return results


def advance(env: Env, chooser: random.Random) -> Any:
    """Play one random action, and begin the next episode if it ended this one."""
    action = env.random_action(chooser)
    result = env.step(action)
    if result[2] or result[3]:
        return as_json((action, result, env.reset()))
    return as_json((action, result))


def play_to_end(env: Env, chooser: random.Random, limit: int = 1000) -> dict[str, Any] | None:
    """Play to the end of the episode and return the last info (``None`` at the limit)."""
    for _ in range(limit):
        _, _, terminated, truncated, info = env.step(env.random_action(chooser))
        if terminated or truncated:
            return info
    return None


def as_json(value: Any) -> Any:
    """Return ``value`` as it is after a round trip through JSON."""
    return json.loads(json.dumps(value, default=repr, sort_keys=True))


def difference(expected: Trace, actual: Trace) -> str:
    """Describe the first difference between two traces of the same length."""
    for step, (one, other) in enumerate(zip(expected, actual, strict=True)):
        if one != other:
            a, b = str(one), str(other)
            begin = max(len(commonprefix((a, b))) - _BEFORE, 0)  # noqa: RUF071  no paths
            place = f"step {step}{f', after {begin} characters' if begin else ''}"
            return f"first difference at {place}: {a[begin:]:.200} != {b[begin:]:.200}"
    return "no difference"
