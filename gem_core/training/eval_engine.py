"""The engine that plays the evaluations before and after training, and whether it is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from gem_core.errors import MissingDependencyError
from gem_core.evaluation.engines import TITLES, engine_of
from gem_core.runs.install import stacks
from gem_core.runs.recipe.recipe import Recipe

ENGINE_LOG = "evaluation.log"
"""File of the run that gets what the engine's process prints."""


def missing_engine(
    recipe: Recipe, trainer: str, has_module: Callable[[str], bool]
) -> tuple[str, str] | None:
    """Return what is missing for the evaluations, and the line that fixes it; else ``None``."""
    engine = engine_of(recipe, trainer)
    if recipe.eval.episodes == 0 or engine == "hf" or has_module(engine):
        return None
    stack = stacks().get(trainer)
    by_hf = "--set eval.engine=hf"
    line = stack.line_for(engine) if stack is not None and stack.engine == engine else by_hf
    wanted, missing = recipe.eval.engine, TITLES[engine]
    return f'eval.engine = "{wanted}", and {missing} is not in this environment of {trainer}', line


def require_engine(recipe: Recipe, trainer: str) -> None:
    """Check that the engine of the evaluations is installed, without importing it.

    Raises:
        MissingDependencyError: it is not; the message has what to do.
    """
    missing = missing_engine(recipe, trainer, _has_module)
    if missing:
        what, line = missing
        raise MissingDependencyError(
            f"{what}: {line}. With --set eval.engine=hf transformers plays them."
        )


def _has_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # what an adapter puts in the place of a module has no specification
        return False
