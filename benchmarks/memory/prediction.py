"""The peak of plain PyTorch steps on a CPU, as the counts of the plan have it."""

from __future__ import annotations

from gem_preflight import activations
from gem_preflight.activations import BFLOAT16, FLOAT32, Precision
from gem_preflight.moments import Moment, Pass, moments, single_tensor_step
from gem_preflight.shapes import Shape


def cross_entropy(tokens: int, precision: Precision, checkpointing: bool) -> Pass:
    """Return a pass with the cross-entropy of all logits in float32, which its caller holds.

    At its worst moment there are the logits, their log-softmax and the gradients of both: in
    float32 four tensors of 4 bytes. Of bfloat16 logits a float32 copy is made: log-softmax and the
    gradients of it and of the copy are float32 (12 bytes), the copy itself is gone (2 + 12).
    """
    held = activations.width(precision)
    return Pass(tokens, precision, checkpointing, held + 3 * FLOAT32, held)


def cpu_peak(shape: Shape, one: Pass, accumulates: bool) -> tuple[int, Moment]:
    """Return the bytes and the moment of the peak of a step with AdamW whose states exist.

    Args:
        shape: sizes of the model.
        one: one of the step's passes, which are all of one size.
        accumulates: whether the step has several passes, so that gradients of the pass before are
            there from the beginning of a pass.
    """
    number = BFLOAT16 if one.precision == "bfloat16" else FLOAT32
    weights = number * shape.parameters
    step = single_tensor_step(shape, number)
    candidates = moments(shape, one, step)
    needs = [moment.total + _gradients(shape, moment, number, accumulates) for moment in candidates]
    largest = max(needs)
    return 3 * weights + largest, candidates[needs.index(largest)]


def _gradients(shape: Shape, moment: Moment, number: int, accumulates: bool) -> int:
    """Bytes of the weights' gradients, without those that the moment counts as temporaries."""
    embedding = shape.vocab * shape.hidden
    made = {
        "none": 0,
        "head": embedding,
        "layers": shape.parameters - embedding,  # a tied head's is among the temporaries
        "all": shape.parameters,
    }
    return number * (shape.parameters if accumulates else made[moment.made])
