"""What a fused kernel for the cross-entropy keeps and makes, where it cannot run."""

from __future__ import annotations

from typing import Any

import torch


class KernelLogprobs(torch.autograd.Function):
    """Logarithms of probabilities, as flash-attn's ``cross_entropy_loss`` (2.8.3) has them.

    It keeps the logits and one float32 for each row, and makes the gradient of the logits in their
    own type: in their place where it may.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, ids: torch.Tensor, inplace: bool) -> torch.Tensor:
        """Return float32 of the shape of ``ids``."""
        ctx.save_for_backward(logits, logits.new_empty(ids.shape, dtype=torch.float32), ids)
        ctx.inplace = inplace
        return logits.new_empty(ids.shape, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Return the gradient of the logits."""
        logits = ctx.saved_tensors[0]
        return (logits if ctx.inplace else torch.empty_like(logits)), None, None


def kernel_logprobs(logits: torch.Tensor, ids: torch.Tensor, inplace: bool) -> torch.Tensor:
    """Return the logarithms of the probabilities of ``ids`` [tokens]; ``logits`` [tokens, ids]."""
    found: torch.Tensor = KernelLogprobs.apply(logits, ids, inplace)
    return found
