"""Whether the device that a recipe trains on exists, before anything is downloaded or written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from gem_core.errors import RecipeError
from gem_core.runs.install import stacks
from gem_core.runs.recipe.recipe import Recipe


def require_device(recipe: Recipe, trainer: str) -> None:
    """Refuse a recipe for GPUs on a machine without one.

    Nothing is asked where the GPUs may be elsewhere: in a Ray cluster that this process joins, or
    wherever a trainer that gem-core does not know puts its work.

    Raises:
        RecipeError: there is no GPU.
    """
    if recipe.hardware.device != "gpu" or _may_be_elsewhere(recipe, trainer):
        return
    import torch

    # Not `is_available`, which starts CUDA in this process: a trainer may fork it.
    if torch.cuda.device_count() == 0:
        raise RecipeError(
            "hardware.device = 'gpu', and torch finds no GPU on this machine: train on a CPU with "
            "--profile tiny, or see what is missing by `gem-core doctor --trainer "
            f"{trainer} --device gpu`."
        )


def _may_be_elsewhere(recipe: Recipe, trainer: str) -> bool:
    known = stacks().get(trainer)
    if known is None:
        return True
    started = Path(tempfile.gettempdir()) / "ray" / "ray_current_cluster"
    cluster = recipe.hardware.nodes > 1 or "RAY_ADDRESS" in os.environ or started.exists()
    return known.ray and cluster
