"""One update on the frozen batch: what Oat reports of it, and what it is given."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gem_oat.advantages import GemAdvantages
from gem_oat.rows import Row

ROWS = [Row(n, reward=reward, excluded=False) for n, reward in enumerate((0.1, 0.7, 0.3))]


def turn_rewards(factor):
    """What the adapter reads from Oat's rewards, which are float32."""
    oats_rewards = torch.tensor([[0.0, row.reward * factor] for row in ROWS])
    return GemAdvantages.turn_rewards(SimpleNamespace(rows=ROWS), oats_rewards)


def test_rewards_keep_their_precision():
    assert turn_rewards(1.0).tolist() == [0.1, 0.7, 0.3]


def test_what_oat_adds_to_a_reward_is_kept():
    """Its KL penalty, or ``reward_scale``."""
    np.testing.assert_allclose(turn_rewards(2.0), [0.2, 1.4, 0.6], rtol=1e-6)


def _clip_ratio(learner):
    learner.learn(1)
    return learner.losses["clip_ratio"]


def test_masked_rows_do_not_dilute_the_clip_ratio(recipe, learner, rows):
    """The same turns, with and without padding rows, clip the same share."""
    clipped = {}
    for micro in (len(rows), len(rows) - 1):
        made = learner(
            recipe("algorithm.epochs=3", "algorithm.lr=0.02", f"batch.micro_batch={micro}"),
            name=f"micro{micro}",
            alone=True,
        )
        made._init(made.args, made.actors)
        made.steps = 0
        made.gradient_update_st = 0.0
        made.process_feedback_data(list(rows))
        clipped[len(made.pi_buffer)] = _clip_ratio(made)
    (fewer, whole), (more, padded) = sorted(clipped.items())
    assert (fewer, more) == (len(rows), 2 * len(rows) - 2)
    assert whole > 0.01 and padded == pytest.approx(whole, rel=1e-3)
