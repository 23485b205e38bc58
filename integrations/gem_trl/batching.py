"""Divide a training step into processes, forward passes and optimizer steps, in TRL's terms."""

from __future__ import annotations

import os
from typing import NamedTuple

from gem_core.errors import RecipeError
from gem_core.runs.recipe.recipe import Recipe


class Batching(NamedTuple):
    """How one process trains on its part of a step's batch.

    Attributes:
        micro: sequences per forward pass.
        accumulation: forward passes per optimizer step.
        generation: forward passes per pass over the whole batch.
    """

    micro: int
    accumulation: int
    generation: int


def batching(recipe: Recipe) -> Batching:
    """Return how the recipe's batch is divided.

    Raises:
        RecipeError: it cannot be divided into equal parts.
    """
    batch = recipe.batch
    minibatches = recipe.algorithm.minibatches
    world = processes(recipe)
    rows, remainder = divmod(batch.episodes, world * minibatches)
    micro = min(batch.micro_batch or rows, rows)
    if remainder or not rows or rows % micro:
        raise RecipeError(
            f"batch.episodes = {batch.episodes} must be a multiple of {world} process(es) "
            f"(hardware.nodes x hardware.gpus_per_node) x algorithm.minibatches = {minibatches} x "
            f"batch.micro_batch = {micro}."
        )
    accumulation = rows // micro
    return Batching(micro, accumulation, accumulation * minibatches)


def processes(recipe: Recipe) -> int:
    """Return the number of training processes; on a CPU those that were started, if any were."""
    if recipe.hardware.device == "gpu":
        return recipe.hardware.gpus
    return int(os.environ.get("WORLD_SIZE", recipe.hardware.gpus))


def updates_per_step(recipe: Recipe) -> int:
    """Return the optimizer steps (TRL's ``global_step``) per training step (one batch)."""
    return recipe.algorithm.epochs * recipe.algorithm.minibatches


def generations(recipe: Recipe) -> int:
    """Return how often TRL repeats a data row: the group's size, or a divisor of the batch.

    TRL needs at least two. Advantages do not depend on it: the recipe's estimator computes them.
    """
    size = recipe.batch.episodes
    smallest = max(2, recipe.batch.group_size)
    return next(count for count in range(smallest, size + 1) if size % count == 0)
