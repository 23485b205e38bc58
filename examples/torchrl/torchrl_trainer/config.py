"""Translate a recipe to the arguments of GRPOLoss, GRPOTrainer and the optimizer."""

from __future__ import annotations

from typing import Any

from gem_adapters.estimate import needs_critic
from gem_adapters.native_keys import native_table, refuse_keys, refuse_native, refuse_values
from gem_core.errors import RecipeError, did_you_mean
from gem_core.runs.recipe.recipe import Recipe
from torchrl_trainer.key_table import TABLE

APPLIED = TABLE.applied
REFUSED = TABLE.refused
TRANSLATED = TABLE.translated
NATIVE_OWNED = TABLE.owned
NATIVE_DEFAULTS = TABLE.defaults


def translate(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as arguments of TorchRL, see `torchrl_trainer.update.Update`.

    Raises:
        RecipeError: a key cannot be honoured, or a native key is unknown or not free.
    """
    refuse_keys(recipe, "torchrl", REFUSED)
    refuse_native(recipe, "torchrl", NATIVE_OWNED)
    native = native_table(recipe, "torchrl")
    for key in native.keys() - NATIVE_DEFAULTS.keys():
        hint = did_you_mean(key, NATIVE_DEFAULTS)
        raise RecipeError(
            f"trainer.torchrl.{key}: the adapter gives TorchRL no such argument.{hint}"
        )
    hardware, model, batch = recipe.hardware, recipe.model, recipe.batch
    constant = recipe.algorithm.loss_aggregation == "constant"
    pieces = batch.episodes % recipe.algorithm.minibatches
    checks = [
        ("algorithm.loss_aggregation", constant, "GRPOLoss has means only; use token or sequence"),
        ("algorithm.clip_low", recipe.algorithm.clip_low >= 1, "GRPOLoss needs less than 1"),
        ("algorithm.estimator", needs_critic(recipe), "it has no critic; use rebn or grpo"),
        ("hardware.device", hardware.device != "cpu", "use the profile tiny"),
        ("hardware.engine", hardware.engine not in ("default", "hf"), "use hf"),
        ("model.dtype", model.dtype != "float32", "use float32"),
        ("model.gradient_checkpointing", model.gradient_checkpointing, "use false"),
        ("batch.episodes algorithm.minibatches", pieces, "the first is a multiple of the second"),
    ]
    refuse_values(recipe, "torchrl", checks)
    return TABLE.settings(recipe) | native
