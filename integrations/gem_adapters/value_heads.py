"""The head of a critic in its trainer's own model: it begins at zero, and has no bias.

Trainers draw it at random, each in its own way, some with a bias: the first advantages of a run of
PPO would then be partly noise, and another noise in each trainer. With V = 0 in all states the
first advantages are sums of rewards, discounted by gamma times lambda, in all of them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from gem_core.errors import GemError


def start_at_zero(model: Any, name: str = "score") -> None:
    """Replace a linear head by one of zeros without a bias.

    Args:
        model: a critic, before its weights are divided among ranks or given to an optimizer; only
            DeepSpeed may have divided them already (ZeRO-3).
        name: of its head.

    Raises:
        GemError: the model has no such head.
    """
    old = getattr(model, name, None)
    if not isinstance(old, torch.nn.Linear):
        raise GemError(
            f"The critic, a {type(model).__name__}, has no linear head {name!r}: use an estimator "
            "without a critic, or a model of another family."
        )
    if old.bias is not None:
        weight = old.weight
        new = torch.nn.Linear(
            old.in_features, old.out_features, bias=False, device=weight.device, dtype=weight.dtype
        )
        setattr(model, name, new)
    weight = getattr(model, name).weight
    with torch.no_grad(), _gathered(weight):
        weight.zero_()


def _gathered(weight: torch.Tensor) -> AbstractContextManager[Any]:
    """Hold a whole weight that DeepSpeed has divided; what is written there stays."""
    if not hasattr(weight, "ds_id"):
        return nullcontext()
    import deepspeed

    gathered: AbstractContextManager[Any] = deepspeed.zero.GatheredParameters(
        [weight], modifier_rank=0
    )
    return gathered
