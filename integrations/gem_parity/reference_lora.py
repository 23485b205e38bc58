"""Low-rank adapters by their formula: y = W x + (alpha / rank) B A x. Source: arXiv 2106.09685."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gem_core.runs.recipe.recipe import Recipe
from gem_parity.recorded import Weights

FALL = ".lora_A.weight"
RISE = ".lora_B.weight"


def add_adapters(
    recipe: Recipe, model: Any, trained: Weights, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Freeze ``model`` and put adapters beside its layers; return them by name.

    Args:
        recipe: the experiment; its ``model.lora`` decides rank, alpha and layers.
        model: a causal language model, changed in place.
        trained: the trainer's initial weights; the random A of each layer is taken from them.
        dtype: precision.

    Raises:
        ValueError: the trainer has adapters at other layers, of another rank, or not beginning
            with B = 0.
    """
    lora = recipe.model.lora
    layers = {name: layer for name, layer in model.named_modules() if _adapted(recipe, name, layer)}
    found = {name.removesuffix(FALL) for name in trained if name.endswith(FALL)}
    if found != set(layers):
        raise ValueError(f"Adapters at other layers: {sorted(found ^ set(layers))}.")
    model.requires_grad_(False)
    adapters: dict[str, Tensor] = {}
    for name, layer in layers.items():
        fall, rise = (torch.tensor(trained[name + part], dtype=dtype) for part in (FALL, RISE))
        if len(fall) != lora.rank or rise.any():
            raise ValueError(f"{name} has rank {len(fall)}, not {lora.rank}, or B is not 0.")
        adapters |= {name + FALL: fall.requires_grad_(), name + RISE: rise.requires_grad_()}
        layer.register_forward_hook(_adapter(fall, rise, lora.alpha / lora.rank))
    return adapters


def _adapted(recipe: Recipe, name: str, layer: Any) -> bool:
    last = name.rpartition(".")[2]
    targets = recipe.model.lora.targets
    return isinstance(layer, torch.nn.Linear) and last != "lm_head" and last in (targets or [last])


def _adapter(fall: Tensor, rise: Tensor, scale: float) -> Callable[[Any, Any, Tensor], Tensor]:
    def add(layer: Any, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        return output + scale * (inputs[0] @ fall.T @ rise.T)

    return add


def plain_names(weights: Iterable[tuple[str, np.ndarray]]) -> Weights:
    """Return the weights of a model of PEFT's under the names that the reference has."""
    names: Weights = {}
    for name, weight in weights:
        plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
        names[plain.replace(".default.weight", ".weight")] = weight
    return names
