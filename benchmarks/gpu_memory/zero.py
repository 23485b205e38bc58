"""DeepSpeed's ZeRO engine with tensors without data: what OpenRLHF and Oat have in common."""

from __future__ import annotations

from typing import Any

import torch
from live import LiveBytes


def without_data(model: Any) -> Any:
    """Return the model, which stays where it is and of its type.

    DeepSpeed moves it with `Module.to`, which cannot exchange weights that are followed.
    """
    for name in ("to", "bfloat16", "half", "float"):
        setattr(model, name, lambda *arguments, **keywords: model)
    return model


def fuse_adam(engine: Any) -> None:
    """Have torch's AdamW step in place, as DeepSpeed's fused Adam does on a GPU."""
    for group in engine.optimizer.optimizer.param_groups:
        group["fused"], group["foreach"] = True, False


def label_states(engine: Any, live: LiveBytes) -> None:
    """Label this process's parts of the float32 weights and of AdamW's states."""
    optimizer = engine.optimizer
    live.label("optimizer", optimizer.single_partition_of_fp32_groups)
    states = optimizer.optimizer.state.values()
    found = [value for state in states for value in state.values()]
    live.label("optimizer", (value for value in found if isinstance(value, torch.Tensor)))
