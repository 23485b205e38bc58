"""``benchmarks/gpu_memory`` with the installed OpenRLHF: a small model's update without data."""

from __future__ import annotations

TOKENS, VOCABULARY = 4096, 65536


def test_zero_divides_the_states_and_a_pass_holds_no_logits_of_the_one_before(run_update):
    weights, found = run_update("openrlhf", TOKENS, VOCABULARY)
    assert 2 * weights <= found["kinds"]["weights"] < 2.1 * weights
    assert 12 * weights <= 8 * found["kinds"]["optimizer"] < 12.1 * weights
    # Float32 logits, their softmax, their gradient, and that in bfloat16; the rest is small.
    logits = 14 * TOKENS * VOCABULARY
    assert logits < found["peak"] < 1.1 * logits
