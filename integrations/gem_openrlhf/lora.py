"""LoRA: the engine and the exported model get whole weights, with the adapters merged in.

OpenRLHF trains adapters, but sends the engine their matrices under PEFT's names, which vLLM does
not load, and exports the adapters only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from openrlhf.utils.distributed_util import torch_dist_barrier_and_cuda_sync
from peft import PeftModel
from peft.tuners.lora import LoraLayer

_PREFIX = "base_model.model."
_WRAPPED = ".base_layer"


@torch.no_grad()
def merged_parameters(model: PeftModel) -> list[tuple[str, torch.nn.Parameter]]:
    """Return the weights of the model without adapters, by its own names.

    Those of layers with adapters are new tensors, added up in float32 and rounded once.
    """
    layers = {
        f"{name}{_WRAPPED}.weight": module
        for name, module in model.named_modules()
        if isinstance(module, LoraLayer)
    }
    merged = []
    for name, weight in model.named_parameters():
        if ".lora_" in name:
            continue
        if name in layers:
            change = layers[name].get_delta_weight("default")
            total = (weight.float() + change.float()).to(weight.dtype)
            weight = torch.nn.Parameter(total, requires_grad=False)
        merged.append((name.removeprefix(_PREFIX).replace(_WRAPPED, ""), weight))
    return merged


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """Have ``named_parameters`` of a model with adapters return the merged weights."""
    if not isinstance(model, PeftModel):
        yield
        return
    parameters = merged_parameters(model)
    model.named_parameters = lambda *_, **__: iter(parameters)
    try:
        yield
    finally:
        del model.named_parameters


def save_merged(strategy: Any, model: Any, tokenizer: Any, folder: str) -> None:
    """Write the merged model in Hugging Face's format, as ``DeepspeedStrategy.save_model`` does.

    Args:
        strategy: OpenRLHF's, of this process.
        model: OpenRLHF's policy with adapters.
        tokenizer: is written beside it.
        folder: where to.
    """
    if strategy.is_rank_0():
        os.makedirs(folder, exist_ok=True)
        adapted = strategy._unwrap_model(model)
        weights = {name: weight.data for name, weight in merged_parameters(adapted)}
        adapted.get_base_model().save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)
    torch_dist_barrier_and_cuda_sync()
