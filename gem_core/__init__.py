"""gem-core: one multi-turn text-environment experiment, five RL trainers.

For a loop of one's own: `make` and `make_vec`, `Context`, `EpisodeMachine`, `play`,
`play_many`, `compute_advantages`, `load_recipe` and `run_experiment`; ``examples/minimal_loop.py``
is such a loop. The names below are imported on first use (PEP 562), so ``import gem_core`` itself
is fast and never imports a trainer, NumPy or a tokenizer.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true; the import of typing costs 10 ms
if TYPE_CHECKING:
    from gem_core.advantages.batch import TurnBatch
    from gem_core.advantages.registry import compute_advantages
    from gem_core.env.checker import check_env
    from gem_core.env.interface import Env, Wrapper
    from gem_core.env.registration import list_envs, make, register, spec
    from gem_core.env.spec import EnvSpec
    from gem_core.episodes.context import Context
    from gem_core.episodes.data import Completion, Episode, Segment, StopReason, Turn
    from gem_core.episodes.machine import EpisodeMachine, Limits
    from gem_core.episodes.rollout import play, play_batch, play_many
    from gem_core.execution.vector.make import make_vec
    from gem_core.runs.recipe.load import load_recipe
    from gem_core.runs.recipe.recipe import Recipe
    from gem_core.runs.tasks import MachineFactory, step_tasks
    from gem_core.training.experiment import run_experiment

__version__ = "0.1.0"

_MODULES = {
    "Completion": "episodes.data",
    "Context": "episodes.context",
    "Env": "env.interface",
    "EnvSpec": "env.spec",
    "Episode": "episodes.data",
    "EpisodeMachine": "episodes.machine",
    "Limits": "episodes.machine",
    "MachineFactory": "runs.tasks",
    "Recipe": "runs.recipe.recipe",
    "Segment": "episodes.data",
    "StopReason": "episodes.data",
    "Turn": "episodes.data",
    "TurnBatch": "advantages.batch",
    "Wrapper": "env.interface",
    "check_env": "env.checker",
    "compute_advantages": "advantages.registry",
    "list_envs": "env.registration",
    "load_recipe": "runs.recipe.load",
    "make": "env.registration",
    "make_vec": "execution.vector.make",
    "play": "episodes.rollout",
    "play_batch": "episodes.rollout",
    "play_many": "episodes.rollout",
    "register": "env.registration",
    "run_experiment": "training.experiment",
    "spec": "env.registration",
    "step_tasks": "runs.tasks",
}

__all__ = [
    "Completion",
    "Context",
    "Env",
    "EnvSpec",
    "Episode",
    "EpisodeMachine",
    "Limits",
    "MachineFactory",
    "Recipe",
    "Segment",
    "StopReason",
    "Turn",
    "TurnBatch",
    "Wrapper",
    "__version__",
    "check_env",
    "compute_advantages",
    "list_envs",
    "load_recipe",
    "make",
    "make_vec",
    "play",
    "play_batch",
    "play_many",
    "register",
    "run_experiment",
    "spec",
    "step_tasks",
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
