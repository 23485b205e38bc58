"""Checks of single calls: return types, refused inputs, errors, and the info dictionaries."""

from __future__ import annotations

import math
import random
import threading
from copy import deepcopy
from typing import Any

from gem_core.env.checker.inputs import MALFORMED, WRONG_TYPES
from gem_core.env.checker.subject import Subject, play_to_end, shown, trace
from gem_core.env.interface import INFO_ERRORS, Env
from gem_core.errors import ActionTypeError, EpisodeStateError, is_interruption

_OBSERVATION_SLACK = 1000
"""How many characters an observation may gain because of a malformed action."""
_HANG_S = 120
_TURNS_BEFORE = (0, 3)
"""Turns of random actions before a malformed one."""


def check_api(subject: Subject) -> None:
    """``reset`` and ``step`` return what `gem_core.env.interface.Env` promises."""
    env = subject.make()
    if not isinstance(env, Env):
        raise subject.fail(f"made a {type(env).__name__}, which is not a gem_core.Env.")
    subject.name = repr(env)
    first = env.reset(seed=subject.seeds[0])
    if not (isinstance(first, tuple) and len(first) == 2):
        raise subject.fail(f"reset() must return (obs, info), not {first!r:.100}.")
    _check_obs_info(subject, "reset()", *first)
    chooser = random.Random(0)
    for _ in range(subject.steps):
        if _check_step(subject, "step()", env.step(env.random_action(chooser))):
            env.reset()


def _check_step(subject: Subject, call: str, result: Any) -> bool:
    """Check the result of a step; return whether it ended the episode."""
    if not (isinstance(result, tuple) and len(result) == 5):
        raise subject.fail(f"{call} must return a 5-tuple, not {result!r:.100}.")
    obs, reward, terminated, truncated, info = result
    _check_obs_info(subject, call, obs, info)
    if type(reward) not in (float, int) or not math.isfinite(reward):
        raise subject.fail(f"{call}: the reward must be a finite float, not {reward!r}.")
    if type(terminated) is not bool or type(truncated) is not bool:
        raise subject.fail(f"{call}: terminated and truncated must be bool.")
    return terminated or truncated


def _check_obs_info(subject: Subject, call: str, obs: Any, info: Any) -> None:
    if not isinstance(obs, str):
        raise subject.fail(f"{call}: an observation must be a str, not {obs!r:.100}.")
    if type(info) is not dict or not all(isinstance(key, str) for key in info):
        raise subject.fail(f"{call}: info must be a dict with str keys: {info!r:.100}.")
    if not isinstance(info.get("suffix", ""), str):
        raise subject.fail(f"{call}: info['suffix'] must be a str.")
    error = info.get("error")
    if error is not None and (not isinstance(error, str) or error not in INFO_ERRORS):
        allowed = ", ".join(map(repr, INFO_ERRORS))
        raise subject.fail(
            f"{call}: info['error'] is {error!r:.100}; it must be absent, or one of {allowed}."
        )


def check_malformed(subject: Subject) -> None:
    """No malformed action raises, hangs or makes the observation grow, in no part of an episode."""
    problems: list[BaseException] = []
    current = ""

    def play() -> None:
        nonlocal current
        try:
            env = subject.make()
            normal = max(len(str(entry)) for entry in trace(env, subject.seeds[0], subject.steps))
            for action in MALFORMED:
                current = action
                for turns in _TURNS_BEFORE:
                    _play_malformed(subject, env, action, turns, normal + _OBSERVATION_SLACK)
        except BaseException as error:  # raised again in the thread of the caller
            problems.append(error)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    thread.join(timeout=_HANG_S)
    if thread.is_alive():
        raise subject.fail(f"step({current!r:.60}) does not return.")
    if problems:
        raise problems[0]


def _play_malformed(subject: Subject, env: Env, action: str, turns: int, longest: int) -> None:
    """Play a malformed action after some turns of random actions, if the episode lasts so long."""
    env.reset(seed=subject.seeds[0])
    chooser = random.Random(0)
    for _ in range(turns):
        _, _, terminated, truncated, _ = env.step(env.random_action(chooser))
        if terminated or truncated:
            return
    call = f"turn {turns + 1}: step({action!r:.60})"
    try:
        result = env.step(action)
    except BaseException as error:
        if is_interruption(error):
            raise
        raise subject.fail(f"{call} raised {shown(error)}") from error
    _check_step(subject, call, result)
    size = len(result[0]) + len(result[4].get("suffix", ""))
    if size > longest:
        raise subject.fail(f"{call} gave an observation of {size} chars")


def check_episode_state(subject: Subject) -> None:
    """Calls out of order and actions of a wrong type raise the right errors."""
    env = subject.make()
    chooser = random.Random(0)
    _expect(subject, EpisodeStateError, env, "\\boxed{1}", "step() before reset()")
    env.reset(seed=subject.seeds[0])
    for wrong in WRONG_TYPES:
        _expect(subject, ActionTypeError, env, wrong, f"step({wrong!r})")
    env.step(_Text(env.random_action(chooser)))
    env.reset(seed=subject.seeds[0])
    if play_to_end(env, chooser) is not None:
        last = env.random_action(chooser)
        _expect(subject, EpisodeStateError, env, last, "step() after the end")
    env.close()
    env.close()
    _expect(subject, EpisodeStateError, env, "\\boxed{1}", "step() after close()")


class _Text(str):
    """A subclass of ``str``, as tokenizers and templates return."""


def _expect(subject: Subject, error: type[Exception], env: Env, action: Any, call: str) -> None:
    try:
        env.step(action)
    except error:
        return
    except BaseException as other:
        if is_interruption(other):
            raise
        raise subject.fail(f"{call} raised {shown(other)}, not {error.__name__}.") from other
    raise subject.fail(f"{call} must raise {error.__name__}.")


def check_success(subject: Subject) -> None:
    """The last info of an episode has a bool ``success``."""
    env = subject.make()
    for seed in subject.seeds:
        env.reset(seed=seed)
        info = play_to_end(env, random.Random(seed))
        if info is not None and type(info.get("success")) is not bool:
            raise subject.fail("info['success'] must be a bool at the end of an episode.")


def check_infos_kept(subject: Subject) -> None:
    """An info dictionary does not change after it was returned."""
    env = subject.make()
    chooser = random.Random(0)
    kept = [env.reset(seed=subject.seeds[0])[1]]
    copies = [deepcopy(kept[0])]
    for _ in range(subject.steps):
        result = env.step(env.random_action(chooser))
        kept.append(result[4])
        copies.append(deepcopy(result[4]))
        if result[2] or result[3]:
            break
    if kept != copies:
        raise subject.fail(
            "an info dict was changed after it was returned; make a new one each step."
        )


def check_random_action(subject: Subject) -> None:
    """Random actions are well-formed, drawn from the caller's generator, and change nothing."""
    env = subject.make()
    for seed in subject.seeds:
        env.reset(seed=seed)
        chooser = random.Random(seed)
        for _ in range(subject.steps):
            _check_one_random_action(subject, env, chooser)


def _check_one_random_action(subject: Subject, env: Env, chooser: random.Random) -> None:
    state = env.get_state()
    twin = deepcopy(chooser)
    action = env.random_action(chooser)
    if env.get_state() != state:
        raise subject.fail("random_action() changed the environment's state.")
    if env.random_action(twin) != action:
        raise subject.fail("random_action() depends on more than the generator given to it.")
    _, _, terminated, truncated, info = env.step(action)
    if info.get("error") == "invalid_format":
        raise subject.fail(f"random action {action!r:.60} has the wrong format.")
    if terminated or truncated:
        env.reset()
