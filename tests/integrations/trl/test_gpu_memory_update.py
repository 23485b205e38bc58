"""``benchmarks/gpu_memory`` with the installed TRL: its update on a small model without data."""

from __future__ import annotations


def test_ddp_keeps_weights_gradients_and_states_whole(run_update):
    weights, found = run_update("trl", 512)
    assert found["kinds"]["weights"] == found["kinds"]["gradients"] == 4 * weights
    assert found["kinds"]["optimizer"] >= 8 * weights
    assert found["peak"] > 16 * weights
