"""Checks of what an environment returns, so that its faults end one episode and not the run.

Third-party environments may return anything. The checks cover everything that the episode machine,
the metrics and the trainers rely on later, where the environment could no longer be identified.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from gem_core.episodes.data import StopReason
from gem_core.errors import EnvResultError


def check_reset(result: Any) -> tuple[str, dict[str, Any]]:
    """Return the observation and the info that ``env.reset`` returned.

    Raises:
        EnvResultError: they are not a text and a dictionary.
    """
    observation, info = _split("reset()", result, ("observation", "info"))
    _check_text("the observation", observation)
    _check_info(info)
    return observation, info


def check_step(result: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
    """Return what ``env.step`` returned, with a ``float`` reward and ``bool`` flags.

    Raises:
        EnvResultError: a part is missing, has the wrong type, or the reward is not finite.
    """
    names = ("observation", "reward", "terminated", "truncated", "info")
    observation, reward, terminated, truncated, info = _split("step()", result, names)
    _check_text("the observation", observation)
    number = _check_reward(reward)
    ended = _check_flag("terminated", terminated)
    cut = _check_flag("truncated", truncated)
    _check_info(info)
    return observation, number, ended, cut, info


def stop_reason(terminated: bool, info: dict[str, Any]) -> StopReason:
    """Return why the environment ended the episode; ``info["stop_reason"]`` has precedence."""
    named = info.get("stop_reason")
    if named is not None:
        return StopReason(named)
    if not terminated:
        return StopReason.TRUNCATED_TURNS
    error = info.get("error")
    wrong_format = isinstance(error, str) and error == "invalid_format"
    return StopReason.INVALID_FORMAT if wrong_format else StopReason.TERMINATED


def _split(call: str, result: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if not isinstance(result, (tuple, list)) or len(result) != len(names):
        count = f" of {len(result)}" if isinstance(result, (tuple, list)) else ""
        raise EnvResultError(
            f"{call} must return ({', '.join(names)}), not a {type(result).__name__}{count}."
        )
    return tuple(result)


def _check_text(name: str, text: Any) -> None:
    if not isinstance(text, str):
        raise EnvResultError(f"{name} must be a str, not {_show(text)}.")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise EnvResultError(
            f"{name} has a lone surrogate at character {error.start}, which no tokenizer can "
            'encode: decode bytes with errors="replace".'
        ) from None


def _check_reward(reward: Any) -> float:
    ordinary = type(reward) is float  # the two isinstance checks are slow
    if not ordinary and (not isinstance(reward, Real) or isinstance(reward, bool)):
        raise EnvResultError(f"the reward must be a float, not {_show(reward)}: use float(...).")
    number = float(reward)
    if not math.isfinite(number):
        raise EnvResultError(f"the reward must be finite, not {number}.")
    return number


def _check_flag(name: str, value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    if isinstance(value, (str, bytes)) or value is None or value not in (0, 1):
        raise EnvResultError(f"{name} must be a bool, not {_show(value)}.")
    return bool(value)


def _check_info(info: Any) -> None:
    if not isinstance(info, dict):
        raise EnvResultError(f"info must be a dict, not {_show(info)}.")
    if not info:
        return
    if info.get("suffix") is not None:
        _check_text('info["suffix"]', info["suffix"])
    if info.get("success") is not None:
        _check_flag('info["success"]', info["success"])
    named = info.get("stop_reason")
    if named is not None and named not in [reason.value for reason in StopReason]:
        known = ", ".join(reason.value for reason in StopReason)
        raise EnvResultError(f'info["stop_reason"] must be one of {known}, not {_show(named)}.')


def _show(value: Any) -> str:
    return f"{value!r:.60} ({type(value).__name__})"
