"""``benchmarks/gpu_memory`` with the installed Oat: its update on a small model without data."""

from __future__ import annotations

BUCKET = 2 * 500_000_000
"""Bytes of the buffer in which DeepSpeed sums gradients: bfloat16."""


def test_zero_divides_the_states_and_the_bucket_has_one_size(run_update):
    weights, found = run_update("oat", 512)
    assert 2 * weights <= found["kinds"]["weights"] < 2.1 * weights
    assert 12 * weights <= 8 * found["kinds"]["optimizer"] < 12.1 * weights
    assert BUCKET < found["peak"] < 1.02 * BUCKET
