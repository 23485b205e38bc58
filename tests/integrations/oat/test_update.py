"""One update on the frozen batch: what Oat reports of it, and what it is given."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gem_oat.advantages import GemAdvantages
from gem_oat.rows import Row, SegmentRow

FIRST = Row(0, 0, reward=0.1, excluded=False, prompt=(1, 2), response=(3, 4))
SECOND = Row(0, 1, reward=0.7, excluded=False, prompt=(1, 2, 3, 4, 5), response=(6,))
OTHER = Row(1, 0, reward=0.3, excluded=False, prompt=(1,), response=(2, 3))
SEGMENTS = [SegmentRow(range(1, 7), (FIRST, SECOND)), SegmentRow(), SegmentRow((1, 2, 3), (OTHER,))]


class Learner:
    """What the adapter's methods read of a learner."""

    segments = SEGMENTS
    rows = [FIRST, SECOND, OTHER]  # noqa: RUF012
    args = SimpleNamespace(reward_scale=1.0)
    places = GemAdvantages.places
    spread = GemAdvantages.spread
    turn_rewards = GemAdvantages.turn_rewards
    get_completion_mask = GemAdvantages.get_completion_mask


def test_rewards_keep_their_precision():
    assert Learner().turn_rewards(torch.zeros(3, 5)).tolist() == [0.1, 0.7, 0.3]


def test_the_scale_of_rewards_and_the_kl_penalty_reach_their_turns():
    learner = Learner()
    learner.args = SimpleNamespace(reward_scale=2.0)
    penalty = torch.zeros(3, 5)
    penalty[0] = torch.tensor([0.0, 1.0, 2.0, 0.0, 4.0])  # Oat's, only where actions are predicted
    penalty[2, :2] = torch.tensor([0.5, 0.25])
    expected = [0.2 + 3.0, 1.4 + 4.0, 0.6 + 0.75]
    np.testing.assert_allclose(learner.turn_rewards(penalty), expected)


def test_each_turn_has_its_advantage_on_its_own_tokens():
    spread = Learner().spread(torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3, 5))
    assert spread.tolist() == [[0, 1, 1, 0, 2], [0] * 5, [3, 3, 0, 0, 0]]


def test_the_mask_has_the_actions_and_one_token_of_a_row_without_any():
    attention = torch.tensor([[1] * 6, [1] * 2 + [0] * 4, [1] * 3 + [0] * 3])
    mask = Learner().get_completion_mask(attention, [2, 1, 1])
    assert mask.int().tolist() == [[0, 0, 1, 1, 0, 1], [0, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0]]


def _clip_ratio(learner):
    learner.learn(1)
    return learner.losses["clip_ratio"]


def test_masked_rows_do_not_dilute_the_clip_ratio(recipe, learner, rows):
    """The same rows, with and without padding rows, clip the same share."""
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
