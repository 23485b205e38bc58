"""The moments of an update at which the most memory may be needed, in bytes.

Which of them is the largest depends on the sizes: the loss for a large vocabulary, a layer for long
rows and a small vocabulary, the gradient of the embedding or the optimizer for short rows. What
lives at each was read from PyTorch's own list of live tensors (``benchmarks/memory``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gem_preflight import activations
from gem_preflight.activations import BFLOAT16, FLOAT32, Precision
from gem_preflight.shapes import Shape

NORM_TEMPORARIES = 5
"""Float32 tensors of an RMSNorm's backward pass: the gradient of the normed input, of the mean
spread over the row, and three of the square (its derivative, twice that, times the gradient)."""

EMBEDDING = "at the embedding's gradient"
"""Name of the last moment of a backward pass."""


@dataclass(frozen=True)
class Pass:
    """A forward pass and its backward pass.

    Attributes:
        tokens: tokens that go through together, padding included.
        precision: how they are computed.
        checkpointing: whether layers are computed again in the backward pass.
        loss_bytes: bytes of a logit at the worst moment of the loss, with all its copies and
            gradients; 0 = the logits are never all there.
        held_bytes: bytes of a logit that the caller still holds in the rest of the backward pass.
        frozen: whether the weights have no gradients, as those under a LoRA.
        chunk_tokens: tokens whose logits a fused head makes at a time; 0 = it has no such chunks.
        chunk_bytes: bytes of a logit of a chunk, with all that is made of it.
    """

    tokens: int
    precision: Precision = "float32"
    checkpointing: bool = False
    loss_bytes: int = 4 * FLOAT32
    held_bytes: int = 0
    frozen: bool = False
    chunk_tokens: int = 0
    chunk_bytes: int = 0


@dataclass(frozen=True)
class Moment:
    """What lives at one moment, besides weights, gradients and optimizer.

    Attributes:
        name: the moment in words.
        activations: bytes that the layers keep for their backward pass.
        logits: bytes of the logits and of what is made of them.
        temporaries: bytes of what an operation makes for a moment.
        made: the gradients of weights that this pass has made so far; those of an earlier pass are
            there all the time.
        bucket: bytes of the buffer that collects gradients until they are summed over the GPUs.
    """

    name: str
    activations: int
    logits: int
    temporaries: int
    made: Literal["none", "head", "layers", "all"] = "none"
    bucket: int = 0

    @property
    def total(self) -> int:
        """Bytes of all four together."""
        return self.activations + self.logits + self.temporaries + self.bucket


def moments(shape: Shape, one: Pass, step: int) -> tuple[Moment, ...]:
    """Return the candidates for the peak of an update.

    Args:
        shape: sizes of the model.
        one: the pass with the most tokens.
        step: bytes that the optimizer makes for a moment.
    """
    return (
        _forward(shape, one),
        _loss(shape, one),
        _head(shape, one),
        _norm(shape, one),
        _last_layer(shape, one),
        _first_layer(shape, one),
        _embedding(shape, one),
        Moment("in the optimizer's step", 0, 0, step, "all"),
    )


def waiting_gradient(shape: Shape, one: Pass, moment: Moment) -> int:
    """Return the bytes of a tied head's gradient where it waits for that of the embedding.

    Both are added to the weight's gradient together, at the end of the backward pass. Where an
    earlier pass has left gradients, it is there beside them; `_embedding` has it already.
    """
    waits = moment.made in ("head", "layers") and moment.name != EMBEDDING
    if not waits or not shape.tied or one.frozen:
        return 0
    return activations.stream(one.precision) * shape.vocab * shape.hidden


def single_tensor_step(shape: Shape, number: int) -> int:
    """Return what ``torch.optim.AdamW`` makes on a CPU, where it takes one tensor at a time.

    The square root of the second moment and its quotient (``_single_tensor_adam``), both of the
    size of the largest weight, ``number`` bytes each.
    """
    mlp = shape.intermediate * shape.hidden
    attention = shape.heads * shape.head_dim * shape.hidden
    return 2 * number * max(shape.vocab * shape.hidden, mlp, attention)


def weight_copies(shape: Shape, one: Pass) -> int:
    """Return the bytes of autocast's bfloat16 copies of the weights of products.

    The backward pass keeps them all; with checkpointing it keeps the output head's, and the layer
    that is computed again makes its own (counted in `_last_layer`).
    """
    if one.precision != "autocast":
        return 0
    head = shape.vocab * shape.hidden if one.loss_bytes else 0
    layers = 0 if one.checkpointing else shape.layers * _products(shape)
    return BFLOAT16 * (head + layers)


def _products(shape: Shape) -> int:
    """Weights of one layer that a product reads."""
    heads = 2 * shape.heads + 2 * shape.kv_heads
    return shape.hidden * (heads * shape.head_dim + 3 * shape.intermediate)


def _kept(shape: Shape, one: Pass) -> int:
    """Bytes of all layers and of the final norm, which is never computed again."""
    final = activations.norm(shape.hidden, one.precision, 1)
    layers = activations.layers(shape, one.precision, one.checkpointing)
    return one.tokens * (layers + final)


def _logits(shape: Shape, one: Pass, number: int) -> int:
    return number * shape.vocab * one.tokens


def _forward(shape: Shape, one: Pass) -> Moment:
    """The last layer's MLP, when autocast still has the copies of all weights that it has made.

    It drops them at the end of the forward pass. Of the MLP there are the activated gate, the other
    factor and their product, beside the input and the residual stream.
    """
    kept = one.tokens * activations.layers(shape, one.precision, one.checkpointing)
    number = activations.width(one.precision)
    made = 3 * number * shape.intermediate
    made += (number + activations.stream(one.precision)) * shape.hidden
    made = one.tokens * made if one.checkpointing else 0  # without it `layers` has them
    copied = one.precision == "autocast" and not one.frozen  # it keeps those of trained weights
    copies = BFLOAT16 * shape.layers * _products(shape) if copied else 0
    return Moment("at the end of the forward pass", kept, 0, made + copies)


def _loss(shape: Shape, one: Pass) -> Moment:
    logits = _logits(shape, one, one.loss_bytes)
    return Moment("at the loss", _kept(shape, one), logits, weight_copies(shape, one))


def _head(shape: Shape, one: Pass) -> Moment:
    """The gradients of the logits, of their weights and of the hidden states.

    Autocast makes the weights' gradient in bfloat16 and then in float32. A head that takes chunks
    has that of a chunk beside their sum.
    """
    number = activations.width(one.precision)
    gradient = number + (FLOAT32 if one.precision == "autocast" else 0)
    gradient *= 2 if one.chunk_tokens else 1
    weights = 0 if one.frozen else gradient * shape.vocab * shape.hidden
    made = weights + number * shape.hidden * one.tokens
    logits = _logits(shape, one, one.held_bytes + min(number, one.loss_bytes))
    logits += one.chunk_bytes * shape.vocab * min(one.chunk_tokens, one.tokens)
    copies = weight_copies(shape, one)
    name = "in the output head's backward pass"
    return Moment(name, _kept(shape, one), logits, made + copies)


def _norm(shape: Shape, one: Pass) -> Moment:
    made = NORM_TEMPORARIES * FLOAT32 * shape.hidden * one.tokens
    logits = _logits(shape, one, one.held_bytes)
    copies = weight_copies(shape, one)
    name = "in the final norm's backward pass"
    return Moment(name, _kept(shape, one), logits, made + copies, "head")


def _mlp_gradients(shape: Shape, one: Pass) -> int:
    """Bytes that an MLP's backward pass makes: the most of its layer.

    The gradient of the product takes the place of the product; those of both factors come to it,
    beside the gradient of the residual stream.
    """
    factors = 2 * activations.width(one.precision) * shape.intermediate
    return one.tokens * (factors + activations.stream(one.precision) * shape.hidden)


def _last_layer(shape: Shape, one: Pass) -> Moment:
    """The first layer of the backward pass, when all others are still kept."""
    layers = activations.layers(shape, one.precision, one.checkpointing)
    again = activations.recomputed(shape, one.precision, one.checkpointing)
    made = _mlp_gradients(shape, one) + weight_copies(shape, one)
    if one.precision == "autocast" and one.checkpointing:
        made += BFLOAT16 * _products(shape)
    logits = _logits(shape, one, one.held_bytes)
    name = "in the last layer's backward pass"
    return Moment(name, one.tokens * (layers + again), logits, made, "head")


def _first_layer(shape: Shape, one: Pass) -> Moment:
    """The last layer of the backward pass, when all gradients but the embedding's are there."""
    kept = one.tokens * activations.layer(shape, one.precision)
    logits = _logits(shape, one, one.held_bytes)
    name = "in the first layer's backward pass"
    return Moment(name, kept, logits, _mlp_gradients(shape, one), "layers")


def _embedding(shape: Shape, one: Pass) -> Moment:
    """The embedding's dense gradient; if it is the head too, also the head's and their sum."""
    tensors = 3 if shape.tied else 1
    if one.frozen:
        tensors = 0
    number = activations.stream(one.precision)
    made = number * (tensors * shape.vocab * shape.hidden + shape.hidden * one.tokens)
    logits = _logits(shape, one, one.held_bytes)
    return Moment(EMBEDDING, 0, logits, made, "layers")
