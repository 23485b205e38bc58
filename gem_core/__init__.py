"""gem-core: one multi-turn text-environment experiment, five RL trainers.

The names below are imported on first use (PEP 562), so ``import gem_core`` itself costs next to
nothing and never imports a trainer, NumPy or a tokenizer.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .checker import check_env
    from .core import Env, Wrapper
    from .episode import Completion, Episode, Segment, StopReason, Turn
    from .machine import EpisodeMachine, Limits
    from .recipe import Recipe, load_recipe
    from .registration import EnvSpec, list_envs, make, register, spec
    from .rollout import play, play_many

__version__ = "0.1.0"

_MODULES = {
    "Completion": "episode",
    "Env": "core",
    "EnvSpec": "registration",
    "Episode": "episode",
    "EpisodeMachine": "machine",
    "Limits": "machine",
    "Recipe": "recipe",
    "Segment": "episode",
    "StopReason": "episode",
    "Turn": "episode",
    "Wrapper": "core",
    "check_env": "checker",
    "list_envs": "registration",
    "load_recipe": "recipe",
    "make": "registration",
    "play": "rollout",
    "play_many": "rollout",
    "register": "registration",
    "spec": "registration",
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
