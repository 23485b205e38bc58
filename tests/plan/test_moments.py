"""The counts of the plan, against sums that were made by hand for a model of small numbers."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gem_preflight import activations
from gem_preflight.moments import (
    Pass,
    moments,
    single_tensor_step,
    waiting_gradient,
    weight_copies,
)
from gem_preflight.shapes import Shape

# hidden 10, 3 layers, 2 query heads and 1 key head of 4, MLP 20, vocabulary 100
TINY = Shape(10, 3, 2, 1, 4, 20, 100, True)
MEMORY = Path(__file__).resolve().parents[2] / "benchmarks" / "memory"
RESULT = MEMORY / "result.json"
SPEC = importlib.util.spec_from_file_location("memory_prediction", MEMORY / "prediction.py")
assert SPEC is not None and SPEC.loader is not None
prediction = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(prediction)
cpu_peak = prediction.cpu_peak
cross_entropy = prediction.cross_entropy


def named(shape: Shape, one: Pass, step: int = 0):
    return {moment.name: moment for moment in moments(shape, one, step)}


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        # input, normed input and output in float32; one factor
        ("float32", 10 * (4 + 4 + 4) + 4),
        # input in float32, normed input and output in bfloat16
        ("bfloat16", 10 * (4 + 2 + 2) + 4),
        # input and normed input in float32, a copy of the output for each of 3 products
        ("autocast", 10 * (4 + 4 + 3 * 2) + 4),
    ],
)
def test_what_a_norm_keeps(precision, expected):
    assert activations.norm(10, precision, 3) == expected


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        # two norms; those of 3 heads of 4; rotated q (8) and k (4), v (4), the result (8) and
        # 2 logarithms; four of the MLP's 20
        ("float32", 2 * 124 + (12 * 8 + 3 * 4) + 4 * 24 + 2 * 4 + 4 * 4 * 20),
        ("bfloat16", 2 * 84 + (12 * 6 + 3 * 4) + 2 * 24 + 2 * 4 + 4 * 2 * 20),
        ("autocast", (144 + 124) + (12 * 6 + 3 * 4) + 2 * 24 + 2 * 4 + 4 * 2 * 20),
    ],
)
def test_what_a_layer_keeps(precision, expected):
    assert activations.layer(TINY, precision) == expected


def test_checkpointing_keeps_the_inputs_of_the_layers():
    assert activations.layers(TINY, "float32", True) == 3 * 10 * 4
    assert activations.layers(TINY, "bfloat16", True) == 3 * 10 * 2
    assert activations.layers(TINY, "autocast", True) == 3 * 10 * 4
    assert activations.layers(TINY, "float32", False) == 3 * activations.layer(TINY, "float32")


def test_the_layer_that_is_computed_again_shares_its_input():
    again = activations.recomputed(TINY, "float32", True)
    assert again == activations.layer(TINY, "float32") - 10 * 4
    # in bfloat16 its first norm makes a float32 copy of the input
    assert activations.recomputed(TINY, "bfloat16", True) == activations.layer(TINY, "bfloat16")
    assert activations.recomputed(TINY, "float32", False) == 0


def test_the_loss_and_the_head():
    one = cross_entropy(7, "float32", checkpointing=True)
    loss = named(TINY, one)["at the loss"]
    assert loss.activations == 7 * (3 * 40 + 124)  # inputs of the layers, the final norm
    assert loss.logits == 7 * 100 * 16  # logits, log-softmax, and the gradients of both
    assert loss.temporaries == 0
    head = named(TINY, one)["in the output head's backward pass"]
    assert head.logits == 7 * 100 * (4 + 4)  # the logits that the caller holds, their gradient
    assert head.temporaries == 4 * 100 * 10 + 4 * 7 * 10


def test_the_loss_in_bfloat16_computes_in_float32():
    one = cross_entropy(7, "bfloat16", checkpointing=False)
    assert (one.loss_bytes, one.held_bytes) == (2 + 12, 2)


def test_the_layers_in_the_backward_pass():
    one = cross_entropy(7, "float32", checkpointing=False)
    layer = activations.layer(TINY, "float32")
    gradients = 7 * (2 * 4 * 20 + 4 * 10)
    last = named(TINY, one)["in the last layer's backward pass"]
    assert (last.activations, last.temporaries) == (7 * 3 * layer, gradients)
    first = named(TINY, one)["in the first layer's backward pass"]
    assert (first.activations, first.temporaries) == (7 * layer, gradients)
    norm = named(TINY, one)["in the final norm's backward pass"]
    assert norm.temporaries == 5 * 4 * 7 * 10
    again = named(TINY, replace(one, checkpointing=True))["in the last layer's backward pass"]
    assert again.activations == 7 * (3 * 40 + layer - 40)


@pytest.mark.parametrize(("tied", "frozen", "tensors"), [(1, 0, 3), (0, 0, 1), (1, 1, 0)])
def test_the_gradient_of_the_embedding(tied, frozen, tensors):
    one = Pass(7, frozen=bool(frozen))
    moment = named(replace(TINY, tied=bool(tied)), one)["at the embedding's gradient"]
    assert moment.temporaries == 4 * (tensors * 100 * 10 + 7 * 10)


def test_a_tied_heads_gradient_waits_until_the_embeddings_is_there():
    def waiting(shape, one):
        found = {name: waiting_gradient(shape, one, m) for name, m in named(shape, one).items()}
        return {name for name, size in found.items() if size}, set(found.values()) - {0}

    places = {
        "in the final norm's backward pass",
        "in the last layer's backward pass",
        "in the first layer's backward pass",
    }
    assert waiting(TINY, Pass(7)) == (places, {4 * 100 * 10})
    assert waiting(TINY, Pass(7, "autocast")) == (places, {4 * 100 * 10})
    assert waiting(TINY, Pass(7, "bfloat16")) == (places, {2 * 100 * 10})
    assert waiting(replace(TINY, tied=False), Pass(7)) == waiting(TINY, Pass(7, frozen=True))
    assert waiting(TINY, Pass(7, frozen=True)) == (set(), set())


def test_a_head_that_takes_chunks_has_one_of_them_and_its_gradient_beside_the_sum():
    one = Pass(7, "bfloat16", loss_bytes=0, chunk_tokens=3, chunk_bytes=20)
    head = named(TINY, one)["in the output head's backward pass"]
    assert head.logits == 20 * 3 * 100
    assert head.temporaries == 2 * (2 * 100 * 10) + 2 * 7 * 10
    short = named(TINY, replace(one, tokens=2))["in the output head's backward pass"]
    assert short.logits == 20 * 2 * 100


def test_autocast_copies_the_weights_of_products():
    layer = 10 * ((2 * 2 + 2 * 1) * 4 + 3 * 20)
    assert weight_copies(TINY, Pass(7, "autocast")) == 2 * (100 * 10 + 3 * layer)
    assert weight_copies(TINY, Pass(7, "autocast", checkpointing=True)) == 2 * 100 * 10
    assert weight_copies(TINY, Pass(7, "autocast", loss_bytes=0)) == 2 * 3 * layer
    assert weight_copies(TINY, Pass(7, "bfloat16")) == 0


def test_autocast_has_the_copies_of_all_layers_until_the_forward_pass_ends():
    name = "at the end of the forward pass"
    layer = 10 * ((2 * 2 + 2 * 1) * 4 + 3 * 20)
    mlp = 7 * (3 * 2 * 20 + (2 + 4) * 10)
    end = named(TINY, Pass(7, "autocast", checkpointing=True))[name]
    assert (end.activations, end.temporaries) == (7 * 3 * 40, 2 * 3 * layer + mlp)
    frozen = named(TINY, Pass(7, "autocast", checkpointing=True, frozen=True))[name]
    assert frozen.temporaries == mlp
    assert named(TINY, Pass(7, "bfloat16"))[name].temporaries == 0


def test_adamw_on_a_cpu_makes_two_tensors_of_the_largest_weight():
    assert single_tensor_step(TINY, 4) == 2 * 4 * 100 * 10
    assert single_tensor_step(replace(TINY, vocab=2), 4) == 2 * 4 * 20 * 10


def test_the_gradients_of_an_earlier_pass_are_there_at_the_loss():
    one = cross_entropy(200, "float32", checkpointing=False)
    weights = 4 * TINY.parameters
    several, moment = cpu_peak(TINY, one, accumulates=True)
    alone, _ = cpu_peak(TINY, one, accumulates=False)
    assert moment.name == "at the loss"
    assert several == 4 * weights + moment.total
    assert several - alone == weights


def test_a_pass_of_few_tokens_is_less_than_the_optimizers_step():
    one = cross_entropy(1, "float32", checkpointing=False)
    peak, moment = cpu_peak(replace(TINY, tied=False), one, accumulates=True)
    assert moment.name == "in the optimizer's step"
    assert peak == 4 * 4 * replace(TINY, tied=False).parameters + 2 * 4 * 1000


def test_the_committed_measurements_are_of_this_prediction():
    result = json.loads(RESULT.read_text())
    held_out = 0
    for case in result["cases"]:
        one = cross_entropy(case["rows"] * case["length"], case["precision"], case["checkpointing"])
        size = {k: v for k, v in result["sizes"][case["size"]].items() if k != "parameters"}
        predicted, _ = cpu_peak(Shape(**size), one, case["passes"] > 1)
        assert predicted == case["predicted_bytes"], case["case"]
        for figure in ("tensors", "mapped"):
            ratio = predicted / case["measured_bytes"][figure]
            assert 0.85 <= ratio <= 1.15, (case["case"], figure, ratio)
        held_out += case["held_out"]
    assert held_out >= 24


def test_the_plan_imports_no_torch():
    code = "import sys, gem_preflight.estimate; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
