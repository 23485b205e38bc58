"""A whole run in bfloat16: advantages stay float64, and engine and trainer stay close.

What stays float32 of weights and the optimizer's state is counted in bytes by the
``test_gpu_memory_update.py`` of the trainers.
"""

from __future__ import annotations

import math

import pytest

from gem_conform.metric_names import undefined

BOUND = 0.01
"""Mean difference of a step's log-probabilities between engine and trainer; 0.004 was seen."""


@pytest.mark.slow("oat", "openrlhf", "rl2", "verl")
@pytest.mark.parametrize("correction", ["none", "tis"])
def test_three_steps(train, correction):
    keys = ["model.dtype=bfloat16", f"algorithm.rollout_correction={correction}", "train.steps=3"]
    status, output, run = train("run", *keys)
    assert status == 0, output[-4000:]
    rows = run.metrics()
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert undefined(row) == []
        assert all(math.isfinite(row[name]) for name in ("loss/policy", "grad_norm", "entropy"))
        assert 0 < row["rollout/logprob_difference"] < BOUND
        # In bfloat16 neither would be closer to these numbers than a thousandth.
        assert abs(row["advantage/mean"]) < 1e-9 and abs(row["advantage/std"] - 1) < 1e-9
