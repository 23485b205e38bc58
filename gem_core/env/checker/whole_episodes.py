"""Checks of whole episodes: they do not raise, they end, and their steps do not block."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gem_core.env.checker.subject import Subject, shown
from gem_core.env.interface import Env
from gem_core.errors import is_interruption

_EPISODES = 4
"""Episodes per seed."""
_LONGEST = 1000
"""Random actions after which an episode counts as endless."""
_LONGEST_S = 60.0
"""Seconds after which it does, too."""
_SLOW_S = 0.25
"""Seconds of a call that blocks its caller."""
_SLOW_CALLS = 3
"""One slow call may be the machine's doing, this many are the environment's."""


def check_mid_game(subject: Subject) -> None:
    """No random action raises, also late in an episode."""
    env = subject.make()
    deadline = time.monotonic() + _LONGEST_S
    for seed in _seeds(subject):
        _turns(subject, env, seed, deadline)


def check_ends(subject: Subject) -> None:
    """Every episode of random actions ends."""
    env = subject.make()
    for seed in subject.seeds:
        if _turns(subject, env, seed, time.monotonic() + _LONGEST_S) is None:
            raise subject.fail(
                f"the episode of seed {seed} is not over after {_LONGEST} random actions, or "
                f"{_LONGEST_S:.0f} s: give it a turn limit. If limits.max_turns of your recipes "
                "ends it, leave this check out: skip=('ends',)."
            )


def _turns(subject: Subject, env: Env, seed: int, deadline: float) -> int | None:
    """Play random actions; return the number of turns to the end, ``None`` if it is not reached."""
    env.reset(seed=seed)
    chooser = random.Random(seed)
    for turn in range(1, _LONGEST + 1):
        action = env.random_action(chooser)
        try:
            _, _, terminated, truncated, _ = env.step(action)
        except BaseException as error:
            if is_interruption(error):
                raise
            raise subject.fail(
                f"seed {seed}, turn {turn}: step({action!r:.60}) raised {shown(error)}"
            ) from error
        if terminated or truncated:
            return turn
        if time.monotonic() > deadline:
            return None
    return None


def check_slow(subject: Subject) -> None:
    """An environment whose calls block says so: ``slow = True``."""
    env = subject.make()
    if env.slow:
        return
    slow: list[float] = []
    for seed in range(_SLOW_CALLS):
        _time(slow, partial(env.reset, seed=seed))
    _require_few(subject, "reset()", slow)
    slow = []
    chooser = random.Random(0)
    for _ in range(subject.steps):
        result = _time(slow, partial(env.step, env.random_action(chooser)))
        _require_few(subject, "step()", slow)
        if result[2] or result[3]:
            env.reset()


def _require_few(subject: Subject, call: str, slow: list[float]) -> None:
    if len(slow) >= _SLOW_CALLS:
        seconds = ", ".join(f"{duration:.2f}" for duration in slow)
        raise subject.fail(
            f"{call} took {seconds} s: set slow = True, so that it is called in a worker and holds "
            "up no other episode."
        )


def _time(slow: list[float], call: Callable[[], Any]) -> Any:
    """Make a call; add its seconds to ``slow`` if they are too many."""
    begun = time.monotonic()
    result = call()
    seconds = time.monotonic() - begun
    if seconds >= _SLOW_S:
        slow.append(seconds)
    return result


def _seeds(subject: Subject) -> list[int]:
    """Return more seeds than those of the traces: what goes wrong late goes wrong rarely."""
    return [seed + 1000 * k for k in range(_EPISODES) for seed in subject.seeds]
