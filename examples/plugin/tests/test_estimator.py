"""The estimator, compared with values that were computed by hand."""

from __future__ import annotations

import pytest
from gem_core.advantages import TurnBatch, compute_advantages


@pytest.mark.parametrize(
    ("limit", "advantages"), [(1.0, [0.0, 0.5, -0.5]), (0.25, [0.0, 0.25, -0.25])]
)
def test_two_episodes(limit, advantages):
    batch = TurnBatch.from_episodes([[0.0, 1.0], [0.0]])
    # With gamma = 0.5 the returns are 0.5 and 1, and 0: their mean is 0.5.
    found = compute_advantages("my-centred", batch, gamma=0.5, limit=limit)
    assert found.tolist() == advantages
