"""gem-core: one multi-turn text-environment experiment, five RL trainers.

The names below are imported on first use (PEP 562), so ``import gem_core`` itself is fast and never
imports a trainer, NumPy or a tokenizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gem_core.env.checker import check_env
    from gem_core.env.interface import Env, Wrapper
    from gem_core.env.registration import list_envs, make, register, spec
    from gem_core.env.spec import EnvSpec
    from gem_core.episodes.data import Completion, Episode, Segment, StopReason, Turn
    from gem_core.episodes.machine import EpisodeMachine, Limits
    from gem_core.episodes.rollout import play, play_many
    from gem_core.runs.recipe.load import load_recipe
    from gem_core.runs.recipe.recipe import Recipe

__version__ = "0.1.0"

_MODULES = {
    "Completion": "episodes.data",
    "Env": "env.interface",
    "EnvSpec": "env.spec",
    "Episode": "episodes.data",
    "EpisodeMachine": "episodes.machine",
    "Limits": "episodes.machine",
    "Recipe": "runs.recipe.recipe",
    "Segment": "episodes.data",
    "StopReason": "episodes.data",
    "Turn": "episodes.data",
    "Wrapper": "env.interface",
    "check_env": "env.checker",
    "list_envs": "env.registration",
    "load_recipe": "runs.recipe.load",
    "make": "env.registration",
    "play": "episodes.rollout",
    "play_many": "episodes.rollout",
    "register": "env.registration",
    "spec": "env.registration",
}

__all__ = [
    "Completion",
    "Env",
    "EnvSpec",
    "Episode",
    "EpisodeMachine",
    "Limits",
    "Recipe",
    "Segment",
    "StopReason",
    "Turn",
    "Wrapper",
    "__version__",
    "check_env",
    "list_envs",
    "load_recipe",
    "make",
    "play",
    "play_many",
    "register",
    "spec",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'gem_core' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"gem_core.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
