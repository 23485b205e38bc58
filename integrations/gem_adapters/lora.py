"""LoRA: engines and the exported model get whole weights, with the adapters merged in.

Frameworks that merge in place (PEFT's ``merge_adapter`` and back) round the base weights at every
hand-over in bfloat16; here they are not touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_PREFIX = "base_model.model."
_WRAPPED = ".base_layer"


def merged_parameters(model: Any) -> list[tuple[str, Any]]:
    """Return the weights of a ``PeftModel`` as those of its model without adapters.

    Those of layers with adapters are new tensors, added up in float32 and rounded once.

    Returns:
        Pairs of the model's own name and a ``torch.nn.Parameter``.
    """
    import torch
    from peft.tuners.lora import LoraLayer

    layers = {
        f"{name}{_WRAPPED}.weight": module
        for name, module in model.named_modules()
        if isinstance(module, LoraLayer)
    }
    merged = []
    with torch.no_grad():
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
    from peft import PeftModel

    if not isinstance(model, PeftModel):
        yield
        return
    parameters = merged_parameters(model)
    model.named_parameters = lambda *_, **__: iter(parameters)
    try:
        yield
    finally:
        del model.named_parameters


def save_merged_model(model: Any, tokenizer: Any, folder: str) -> None:
    """Write a ``PeftModel`` in Hugging Face's format, merged; it stays as it is.

    Args:
        model: it, not wrapped by a framework.
        tokenizer: is written beside it.
        folder: where to.
    """
    weights = {name: weight.data for name, weight in merged_parameters(model)}
    model.get_base_model().save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)
