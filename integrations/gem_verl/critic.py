"""verl's critic in a process of verl: it begins with V = 0, and is trained where it is read.

Each repair is to be removed when verl has a setting for it.
"""

from __future__ import annotations

from functools import cache, wraps
from typing import Any

import torch

from gem_adapters.value_heads import start_at_zero

_MASKS = ("loss_mask", "response_mask")
"""What verl's critic is trained at: for the number of tokens, and for the loss itself."""


@cache
def install() -> None:
    """Change the critics that this process makes; done once per process.

    Every process of verl calls this: one that makes a critic does not import
    `gem_verl.worker_plugin`, which is loaded with a policy.
    """
    from verl.utils import model as models

    original = models.load_valuehead_model

    @wraps(original)
    def starting_at_zero(*args: Any, **kwargs: Any) -> Any:
        train_where_read()
        model = original(*args, **kwargs)
        start_at_zero(model)
        return model

    models.load_valuehead_model = starting_at_zero


@cache
def train_where_read() -> None:
    """Train the critics of this process at the last prompt token of each turn.

    verl trains them before every action token, towards the same target. Done once per process.
    """
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead

    original = FSDPEngineWithValueHead.forward_backward_batch

    @wraps(original)
    def where_read(self: Any, data: Any, loss_function: Any, forward_only: bool = False) -> Any:
        if not forward_only:
            data = data.clone(recurse=False)
            for name in _MASKS:
                data[name] = first_of_turns(data[name])
        return original(self, data, loss_function, forward_only)

    FSDPEngineWithValueHead.forward_backward_batch = where_read


def first_of_turns(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask of the first token of each run of ones; its state is the turn's.

    Args:
        mask: jagged [rows, tokens], 1 on action tokens. Turns have tokens between them, see
            `gem_verl.rollout.to_native`.
    """
    flat = mask.values()
    before = torch.roll(flat, 1)
    before[mask.offsets()[:-1]] = 0
    return torch.nested.nested_tensor_from_jagged(flat * (before == 0), mask.offsets())
