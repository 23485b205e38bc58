"""Memory of a training process, by part, in bytes.

Everything here is a lower bound; `cpu_peak` was 15 to 22 % below the peak of CPU runs
(``benchmarks/memory/run.py``). The activations are counted from the operations that keep a tensor
for their backward pass, as Korthikanti et al. do (arXiv 2205.05198, section 4), here for those of
Qwen3 in transformers: RMSNorm, rotary positions, attention that keeps no scores (arXiv
2205.14135), gated MLP.
"""

from __future__ import annotations

from gem_core.plan.shapes import Shape

FLOAT32 = 4


def layer_activations(shape: Shape, tokens: int, width: int) -> int:
    """Return the bytes that one decoder layer keeps for its backward pass.

    Args:
        shape: sizes of the model.
        tokens: tokens in the forward pass.
        width: bytes of a number in the forward pass: 2 for bfloat16, 4 for float32.

    An RMSNorm computes in float32: it keeps its input in float32, the normed input (in float32
    before the conversion, and in ``width`` for the product with the scale) and its output. Queries
    and keys are kept by their norm and after the rotation.
    """
    queries = shape.heads * shape.head_dim
    keys = shape.kv_heads * shape.head_dim
    norm = 3 * FLOAT32 if width == FLOAT32 else 2 * FLOAT32 + 2 * width
    inner_norm = 2 * FLOAT32 if width == FLOAT32 else 2 * FLOAT32 + width
    norms = 2 * norm * shape.hidden + inner_norm * (queries + keys)
    attention = width * (queries + 2 * keys + queries)  # rotated q and k, v; the result
    mlp = 4 * width * shape.intermediate  # gate, its activation, up, their product
    return tokens * (norms + attention + mlp)


def activations(shape: Shape, tokens: int, width: int, checkpointing: bool) -> int:
    """Return the bytes of the activations of all layers.

    With gradient checkpointing each layer keeps its input alone, and one layer at a time is
    computed again.
    """
    layer = layer_activations(shape, tokens, width)
    if not checkpointing:
        return shape.layers * layer
    return shape.layers * tokens * shape.hidden * width + layer


def logits(shape: Shape, tokens: int, bytes_per_logit: int) -> int:
    """Return the bytes of the output head's results and of what the loss makes of them."""
    return tokens * shape.vocab * bytes_per_logit


def cpu_peak(shape: Shape, tokens: int, checkpointing: bool) -> int:
    """Return the peak of a step in float32 with AdamW: the states exist, the gradients come.

    At the peak either the loss begins its backward pass (logits, their log-softmax and the
    gradients of both: four tensors), or the gradients are there and the optimizer steps.
    """
    weights = FLOAT32 * shape.parameters
    states = 2 * weights
    kept = activations(shape, tokens, FLOAT32, checkpointing)
    if checkpointing:  # the recomputed layer comes after the logits
        kept -= layer_activations(shape, tokens, FLOAT32)
    loss = logits(shape, tokens, 4 * FLOAT32)
    largest = FLOAT32 * shape.vocab * shape.hidden
    step = weights + 2 * largest  # gradients, AdamW's temporaries of one tensor
    return weights + states + max(kept + loss, step)
