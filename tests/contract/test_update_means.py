"""Means over the action tokens of optimizer steps, against sums written out."""

from __future__ import annotations

import math

import pytest
import torch

from gem_adapters.rollout_correction import truncated_weights
from gem_adapters.update_means import UpdateMeans, token_sums
from gem_core.runs.recipe.recipe import AlgorithmConfig

NAN = math.nan
PASSES = [
    {
        "mask": [[1, 1, 0], [0, 1, 1]],
        "logprobs": [[-1.0, -2.0, NAN], [NAN, -0.5, -1.0]],
        "old": [[-1.5, -2.0, NAN], [NAN, -0.1, -1.05]],
        "advantages": [[1.0, 1.0, NAN], [NAN, -1.0, -1.0]],
        "entropy": [[0.1, 0.2, NAN], [NAN, 0.3, 0.4]],
        "initial": [[-1.0, -1.0, NAN], [NAN, -0.5, -1.0]],
        "rollout": [[-1.5, -2.5, NAN], [NAN, -0.1, -1.15]],
    },
    {
        "mask": [[1]],
        "logprobs": [[-1.0]],
        "old": [[-1.5]],
        "advantages": [[-1.0]],
        "entropy": [[0.5]],
        "initial": [[-1.0]],
        "rollout": [[-1.5]],
    },
]
"""Ratios: 1.65 with a positive advantage (clipped), 1, 0.67 with a negative one (clipped), 1.05;
then 1.65 with a negative one (not clipped)."""


def tensors(part):
    return {name: torch.tensor(rows) for name, rows in part.items()}


def test_every_figure_is_a_mean_over_tokens_then_over_optimizer_steps():
    means = UpdateMeans((0.2, 0.2))
    for part in PASSES:
        means.add(**tensors(part))
        means.end_update()
    metrics = means.finish()
    kl = (math.exp(1) - 1 - 1) / 4
    assert metrics == pytest.approx(
        {
            "clip_ratio": (2 / 4 + 0) / 2,
            "entropy": (1.0 / 4 + 0.5) / 2,
            "kl": kl / 2,
            "rollout/logprob_difference": (0.6 / 4 + 0) / 2,
        }
    )
    assert means.finish() == {}  # the next step begins with nothing


def test_forward_passes_and_ranks_do_not_change_a_mean():
    means = UpdateMeans((0.2, 0.2))
    whole = tensors(PASSES[0])
    for row in range(2):
        means.add(**{name: tensor[row : row + 1] for name, tensor in whole.items()})
    alone = UpdateMeans((0.2, 0.2))
    alone.add(**whole)
    expected = alone.finish()
    assert means.finish() == pytest.approx(expected)
    # Of two ranks, one has nothing to train on: the sum is that of the other.
    alone.add(**whole)
    empty = {**whole, "mask": torch.zeros(2, 3)}
    other = UpdateMeans((0.2, 0.2))
    other.add(**empty)
    tables = []
    other.finish(lambda array: tables.append(array) or array)
    assert alone.finish(lambda array: array + tables[0]) == pytest.approx(expected)


def test_what_is_not_known_has_no_name():
    part = tensors(PASSES[0])
    for name in ("entropy", "initial", "rollout"):
        del part[name]
    assert token_sums((0.2, 0.2), **part).keys() == {"tokens", "clip_ratio"}


def test_weights_are_truncated_ratios_and_one_elsewhere():
    algorithm = AlgorithmConfig(rollout_correction="tis", rollout_cap=2.0)
    old = torch.tensor([[0.0, -1.0, -5.0]])
    rollout = torch.tensor([[-1.0, -0.5, 0.0]])
    weights = truncated_weights(algorithm, old, rollout, torch.tensor([[1, 1, 0]]))
    assert weights.tolist()[0] == pytest.approx([2.0, math.exp(-0.5), 1.0])
