"""What a trainer keeps in memory for each weight and each logit, as its adapter declares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Sharding = Literal["none", "optimizer", "full"]


@dataclass(frozen=True)
class EngineMemory:
    """What a trainer's generation engine takes of the GPUs that train.

    Attributes:
        share: of a GPU's memory, while episodes are played.
        share_key: the native key that changes it, dotted.
        sleep_key: the native key that, set to false, keeps the engine's memory while the model is
            trained; "" = it always gives it back.
        elsewhere: native key and value with which the engine is on GPUs of its own.
        beside: whether weights and optimizer stay on the GPU while episodes are played.
    """

    share: float
    share_key: str
    sleep_key: str = ""
    elsewhere: tuple[str, str] = ("", "")
    beside: bool = True


@dataclass(frozen=True)
class MemoryLayout:
    """How a trainer holds a model on its GPUs, for `gem_preflight`.

    Attributes:
        weights: bytes of a weight that the forward pass is made from.
        gradients: bytes of a gradient.
        optimizer: bytes of AdamW's states of a weight, with a float32 copy where there is one.
        sharding: what the GPUs divide among them unless the recipe sets ``hardware.sharding``.
        bytes_per_logit: of bfloat16 logits: the result and the tensors that the loss makes of it.
            10 is bfloat16, its float32 copy and the gradient of that; a loss that makes further
            copies needs more. Measured by ``tests/integrations/<trainer>/test_logits.py``;
            verl's by ``benchmarks/gpu_memory``.
        rows: rows of a forward pass where the recipe leaves it open: one, or a whole minibatch.
        packed: whether a pass can be bounded by ``batch.max_tokens_per_device``.
        default_tokens: bound of a pass where the recipe sets none; 0 = there is none.
        autocast: whether bfloat16 is ``torch.autocast`` over float32 weights, which keeps more
            than passes all in bfloat16.
        step: bytes that the optimizer's step makes for a moment, of a weight whose states it has.
            4: torch's AdamW (``_multi_tensor_adamw``: the square root of the second moment), and
            DeepSpeed's ZeRO 1 and 2 (the gradient in float32); 0: torch's fused AdamW.
        bytes_with_entropy: of a logit, where ``algorithm.entropy_coef`` puts the entropy into the
            loss; ``None`` = as without.
        bytes_with_support: the same with ``sampling.support = "drawn"``; ``None`` = as without.
        fused_key: native key that decides whether the loss never makes all logits at once; without
            it that is so where ``batch.micro_batch`` is 1. "" = there is no such key.
        head_chunk: of the fused head: tokens whose logits it makes at a time, and bytes of each of
            these logits with all that is made of it; (0, 0) where kernels work on small tiles.
        buckets: bytes of a gradient that several data-parallel GPUs keep beside it; 0 where the
            gradients are views of the buckets (DDP's ``gradient_as_bucket_view``).
        reduce_bucket: bytes of the buffer that collects gradients in a backward pass until they are
            summed over the GPUs, of one size for every model (DeepSpeed's ``reduce_bucket_size``).
        whole_gradients: whether a GPU keeps its part of the gradients as whole tensors: those of
            all weights of which it has some, so at least the embedding's (DeepSpeed's ZeRO 2).
        engine: the generation engine; ``None`` = not counted.
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
    bytes_with_entropy: int | None = None
    bytes_with_support: int | None = None
    fused_key: str = ""
    head_chunk: tuple[int, int] = (0, 0)
    buckets: int = 0
    reduce_bucket: int = 0
    whole_gradients: bool = False
    engine: EngineMemory | None = None
