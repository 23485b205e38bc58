"""Weights on their way out of verl's workers: adapters of LoRA are merged.

verl exports a model with adapters under names that transformers does not read, and rounds merged
weights to bfloat16 on the way to the engine.
Each repair is to be removed when verl does this itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from typing import Any

import torch
from peft import PeftModel
from torch.distributed.tensor import DTensor
from verl.utils.checkpoint import fsdp_checkpoint_manager
from verl.utils.device import get_device_id
from verl.utils.fsdp_utils import fsdp_version, offload_fsdp_model_to_cpu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

from gem_core.errors import GemError

_PREFIX = "base_model.model."
_WRAPPED = ".base_layer"


@torch.no_grad()
def merged_weights(module: PeftModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the whole weights of a model with adapters, these added, by the model's own names.

    The model stays as it is. All ranks take part.

    Args:
        module: under FSDP2.

    Raises:
        GemError: the model is under FSDP1.
    """
    if fsdp_version(module) == 1:
        raise GemError('LoRA needs verl\'s strategy "fsdp2": leave it out of [trainer.verl].')
    for name, weight in module.state_dict().items():
        if ".lora_" in name:
            continue
        total = _whole(weight)
        if name.endswith(f"{_WRAPPED}.weight"):
            layer = module.get_submodule(name.removesuffix(f"{_WRAPPED}.weight"))
            total = (total.float() + _change(layer)).to(total.dtype)
        yield name.removeprefix(_PREFIX).replace(_WRAPPED, ""), total


def _change(layer: Any) -> torch.Tensor:
    """Return what the adapter of a layer adds to its weight."""
    rise = _whole(layer.lora_B["default"].weight).float()
    fall = _whole(layer.lora_A["default"].weight).float()
    change = layer.scaling["default"] * (rise @ fall)
    return change.T if layer.fan_in_fan_out else change


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a weight that may be divided among the ranks."""
    tensor = tensor.detach()
    if isinstance(tensor, DTensor):
        return tensor.to(get_device_id()).full_tensor()
    return tensor.clone()


def _for_engine(self: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Take the place of ``FSDPEngine._merged_lora_per_tensor_param``, in the weights' precision."""
    try:
        yield from merged_weights(self.module)
    finally:
        if self._is_offload_param:
            offload_fsdp_model_to_cpu(self.module)


def install() -> None:
    """Put the repairs into this process; repeating it is harmless."""
    FSDPEngine._merged_lora_per_tensor_param = _for_engine
    _merge_exports()


def _merge_exports() -> None:
    original = fsdp_checkpoint_manager.get_fsdp_full_state_dict
    if getattr(original, "gem", False):
        return

    @wraps(original)
    def full_state(model: Any, *args: Any, **options: Any) -> dict[str, torch.Tensor]:
        if not isinstance(model, PeftModel):
            state: dict[str, torch.Tensor] = original(model, *args, **options)
            return state
        first = torch.distributed.get_rank() == 0
        return {name: weight.cpu() for name, weight in merged_weights(model) if first}

    full_state.gem = True  # type: ignore[attr-defined]
    fsdp_checkpoint_manager.get_fsdp_full_state_dict = full_state
