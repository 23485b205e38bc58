"""What a trainer keeps in memory for each weight and each logit, as its adapter declares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Sharding = Literal["none", "optimizer", "full"]


@dataclass(frozen=True)
class MemoryLayout:
    """How a trainer holds a model on its GPUs, for `gem_core.training.preflight`.

    Attributes:
        weights: bytes of a weight that the forward pass is made from.
        gradients: bytes of a gradient.
        optimizer: bytes of AdamW's states of a weight, with a float32 copy where there is one.
        sharding: what the GPUs divide among them unless the recipe sets ``hardware.sharding``.
        bytes_per_logit: the result and the tensors that the loss makes of it. 10 is bfloat16, its
            float32 copy and the gradient of that; a loss that makes further copies needs more (14:
            PyTorch's cross-entropy of a float32 copy, measured on a CPU).
        rows: rows of a forward pass where the recipe leaves it open: one, or a whole minibatch.
        packed: whether a pass can be bounded by ``batch.max_tokens_per_device``.
        default_tokens: bound of a pass where the recipe sets none; 0 = there is none.
        autocast: whether bfloat16 is ``torch.autocast`` over float32 weights, which keeps more
            than passes all in bfloat16.
        step: bytes that the optimizer's step makes for a moment, of a weight whose states it has.
            4: torch's AdamW (``_multi_tensor_adamw``: the square root of the second moment), and
            DeepSpeed's ZeRO 1 and 2 (the gradient in float32); 0: torch's fused AdamW.
    """

    weights: int
    gradients: int
    optimizer: int
    sharding: Sharding
    bytes_per_logit: int
    rows: Literal["one", "minibatch"]
    packed: bool = False
    default_tokens: int = 0
    autocast: bool = False
    step: int = 4
