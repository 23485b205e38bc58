"""Which engine plays an evaluation, and what loads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gem_core.errors import RecipeError
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import get_trainer, list_trainers, resolve

CONCURRENCY = 512
"""Episodes at a time; how many of their requests run at once is the engine's decision."""
TITLES = {"hf": "transformers", "vllm": "vLLM", "sglang": "SGLang"}
"""Name of ``eval.engine`` -> the name of the engine."""


def engine_of(recipe: Recipe, trainer: str | None) -> str:
    """Return what plays the evaluations of a recipe: ``hf``, ``vllm`` or ``sglang``.

    Args:
        recipe: ``eval.engine``, ``hardware.engine`` and ``hardware.device``.
        trainer: name of the trainer whose engine ``eval.engine = "trainer"`` means; with ``None``
            it is ``hf``.
    """
    if recipe.eval.engine != "trainer":
        return recipe.eval.engine
    if trainer is None or recipe.hardware.engine != "default":
        return "hf" if trainer is None else recipe.hardware.engine
    own = next(iter(get_trainer(trainer).eval_engines), "hf")
    return own if recipe.hardware.device == "gpu" else "hf"


def engine_loader(name: str) -> Callable[..., Any]:
    """Return the function that loads a model into ``vllm`` or ``sglang``, of any adapter.

    Raises:
        RecipeError: no installed adapter declares the engine.
    """
    for trainer in list_trainers().values():
        if name in trainer.eval_engines:
            return resolve(trainer.eval_engines[name])
    raise RecipeError(
        f'eval.engine: no adapter of a trainer that is installed has "{name}"; use eval.engine=hf.'
    )
