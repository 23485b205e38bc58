"""The device of a warm start: that of the recipe, whose memory is given back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gem_core.errors import GemError
from gem_core.policies.gpu import release_memory
from gem_core.runs.recipe.recipe import Recipe


@contextmanager
def on_recipes_device(recipe: Recipe, model: Any) -> Iterator[str]:
    """Have ``model`` on the recipe's device inside the block, and on the CPU after it.

    Yields the device's name. Where the GPUs are elsewhere, as in a Ray cluster, it stays on the
    CPU. On a GPU activations are recomputed where the recipe's training does so.

    Raises:
        GemError: the GPU has too little memory.
    """
    if recipe.hardware.device != "gpu" or not torch.cuda.is_available():
        yield "cpu"
        return
    recomputes = recipe.model.gradient_checkpointing
    release_memory()
    try:
        model.to("cuda")
        if recomputes:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        yield torch.cuda.get_device_name()
    except torch.cuda.OutOfMemoryError as error:
        raise GemError(
            "The warm start does not fit into the GPU's memory: lower model.warm_start.batch, or "
            "set model.gradient_checkpointing=true."
        ) from error
    finally:
        if recomputes:
            model.gradient_checkpointing_disable()
        model.to("cpu")
        release_memory()
