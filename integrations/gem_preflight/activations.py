"""Bytes of a token that a decoder keeps for its backward pass.

Counted from the operations that keep a tensor, as Korthikanti et al. do (arXiv 2205.05198, section
4), here for those of Qwen3 in transformers 5 (``models/qwen3/modeling_qwen3.py``): RMSNorm, rotary
positions, attention that keeps no scores (arXiv 2205.14135), gated MLP. Every count was compared
with PyTorch's own list of live tensors; ``benchmarks/memory`` compares the sums.
"""

from __future__ import annotations

from typing import Literal

from gem_preflight.shapes import Shape

Precision = Literal["float32", "bfloat16", "autocast"]
"""How the passes compute: all in one type, or from float32 weights with their products in bfloat16
(``torch.autocast``), where the residual stream stays float32."""

FLOAT32 = 4
BFLOAT16 = 2


def width(precision: Precision) -> int:
    """Return the bytes of a number in the products and in what they return."""
    return FLOAT32 if precision == "float32" else BFLOAT16


def stream(precision: Precision) -> int:
    """Return the bytes of a number of the residual stream."""
    return BFLOAT16 if precision == "bfloat16" else FLOAT32


def norm(size: int, precision: Precision, readers: int) -> int:
    """Return the bytes of a token that an RMSNorm of ``size`` numbers keeps, its output included.

    It keeps its input in float32 (for the square and for the product with ``rsqrt``), the normed
    input in the type of the stream (for the product with the scale), and its output, which the
    products behind it keep: once, or under autocast as one bfloat16 copy for each of ``readers``.
    The factor of ``rsqrt`` is one float32.
    """
    kept = FLOAT32 + stream(precision)
    output = readers * BFLOAT16 if precision == "autocast" else width(precision)
    return size * (kept + output) + FLOAT32


def head_norms(shape: Shape, precision: Precision) -> int:
    """Return the bytes of a token that the norms of queries and keys keep.

    As `norm`, without the output: the rotation multiplies it by constants and keeps nothing of it.
    One factor of ``rsqrt`` for each head.
    """
    heads = shape.heads + shape.kv_heads
    return heads * shape.head_dim * (FLOAT32 + width(precision)) + heads * FLOAT32


def layer(shape: Shape, precision: Precision) -> int:
    """Return the bytes of a token that one decoder layer keeps, its input included.

    Grouped queries share their keys and values, without copies. Attention keeps the logarithm of
    each row's sum in float32.
    """
    number = width(precision)
    queries = shape.heads * shape.head_dim
    keys = shape.kv_heads * shape.head_dim
    norms = norm(shape.hidden, precision, 3) + norm(shape.hidden, precision, 2)
    norms += head_norms(shape, precision)
    attention = number * (queries + 2 * keys + queries)  # rotated q and k, v; the result
    attention += FLOAT32 * shape.heads
    mlp = 4 * number * shape.intermediate  # gate, its activation, up, their product
    return norms + attention + mlp


def layers(shape: Shape, precision: Precision, checkpointing: bool) -> int:
    """Return the bytes of a token that all layers keep: with checkpointing their inputs alone."""
    if checkpointing:
        return shape.layers * shape.hidden * stream(precision)
    return shape.layers * layer(shape, precision)


def recomputed(shape: Shape, precision: Precision, checkpointing: bool) -> int:
    """Return the bytes of a token of the layer that checkpointing computes again.

    Its input is there already, and is what its first norm keeps unless that makes a float32 copy.
    """
    if not checkpointing:
        return 0
    shared = 0 if precision == "bfloat16" else stream(precision)
    return layer(shape, precision) - shared * shape.hidden
