"""The gradient's signal and noise, as `benchmarks/learning` estimates them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gem_adapters.turn_batch import turn_batch
from gem_core.advantages import compute_advantages
from gem_core.episodes.rollout import play_batch
from gem_core.evaluation.local import load_policy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "learning"))
import gradient


@pytest.fixture(scope="module")
def played(quick_model):
    """Return the model, its recipe and three batches of 16 episodes."""
    from gem_core.runs.recipe.load import load_recipe

    recipe = load_recipe("guess-the-number-easy", "tiny", ["algorithm.estimator=reinforce"])
    with load_policy(recipe, quick_model) as (factory, policy, _):
        batches = [
            play_batch([factory.train(16 * n + k) for k in range(16)], policy) for n in range(3)
        ]
        yield policy.engine.model, recipe.algorithm, batches


def test_the_gradient_is_that_of_each_turn_without_padding(played):
    model, algorithm, (batch, *_) = played
    advantages = compute_advantages(algorithm.estimator, turn_batch(batch), gamma=algorithm.gamma)
    losses = []
    first = 0
    for episode in batch:
        (segment,) = episode.segments
        ids = torch.tensor([segment.token_ids])
        chances = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        for turn, start, end in segment.spans:
            for at in range(start, end):
                losses.append(-advantages[first + turn] * chances[at - 1, ids[0, at]])
        first += len(episode.turns)
    model.zero_grad(set_to_none=True)
    torch.stack(losses).mean().backward()
    names = sorted(model.named_parameters())
    expected = torch.cat([p.grad.flatten() for _, p in names if p.grad is not None]).double()
    found = gradient.batch_gradient(model, batch, algorithm)
    assert np.abs(found).max() > 1e-4
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-6)


def test_equal_batches_are_signal_alone(played):
    model, algorithm, (batch, *_) = played
    figures = gradient.signal_and_noise(model, [batch] * 3, algorithm)
    assert figures["cosine"] == pytest.approx(1)
    assert figures["noise"] == pytest.approx(0, abs=1e-9)
    assert figures["episodes_for_one"] == pytest.approx(0, abs=1e-3)


def test_different_batches_have_noise(played):
    model, algorithm, batches = played
    figures = gradient.signal_and_noise(model, batches, algorithm)
    assert figures["noise"] > 0 and figures["cosine"] < 0.9
