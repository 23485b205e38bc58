"""How each trainer holds a model on its GPUs, as its released source does.

TRL 1.16 ``trainer/grpo_trainer.py``; verl 0.9 ``trainer/config/engine/fsdp.yaml`` (``model_dtype:
fp32``); OpenRLHF ``cli/train_ppo_ray.py`` (``ds.zero_stage`` 2) and ``models/actor.py`` (logits to
float32); Oat ``args.py`` (``zero_stage`` 2) and ``model.py``; RL2 ``utils/data_parallelism.py``
(bfloat16 in the pass) and ``workers/actor.py`` (logits to float32).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gem_core.errors import unknown

Sharding = Literal["none", "optimizer", "full"]


@dataclass(frozen=True)
class Layout:
    """The bytes that a trainer keeps.

    Attributes:
        weights: bytes of a weight that the forward pass is made from.
        gradients: bytes of a gradient.
        optimizer: bytes of AdamW's states of a weight, with a float32 copy where there is one.
        sharding: what the GPUs divide among them unless the recipe sets ``hardware.sharding``.
        bytes_per_logit: the result in bfloat16 and the float32 tensors of the loss.
        rows: rows of a forward pass where the recipe leaves it open: one, or a whole minibatch.
        packed: whether a pass can be bounded by ``batch.max_tokens_per_device``.
        default_tokens: bound of a pass where the recipe sets none; 0 = there is none.
    """

    weights: int
    gradients: int
    optimizer: int
    sharding: Sharding
    bytes_per_logit: int
    rows: Literal["one", "minibatch"]
    packed: bool = False
    default_tokens: int = 0


LAYOUTS = {
    "trl": Layout(4, 4, 8, "none", 0, "minibatch"),
    "verl": Layout(4, 4, 8, "full", 10, "one", packed=True, default_tokens=16384),
    "openrlhf": Layout(2, 2, 12, "optimizer", 10, "minibatch", packed=True),
    "oat": Layout(2, 2, 12, "optimizer", 10, "one"),
    "rl2": Layout(4, 4, 8, "full", 10, "minibatch"),
}
"""``bytes_per_logit`` 10: bfloat16, its float32 copy and the float32 gradient of that. A loss that
makes further copies (entropy, unfused log-softmax) needs more; it is a lower bound. TRL's output
head (``add_fused_lm_head``) never makes all logits at once."""


def layout(trainer: str) -> Layout:
    """Return the layout of the trainer called ``trainer``.

    Raises:
        UnknownNameError: there is none of this name.
    """
    if trainer not in LAYOUTS:
        raise unknown("trainer with a memory layout", trainer, LAYOUTS)
    return LAYOUTS[trainer]
