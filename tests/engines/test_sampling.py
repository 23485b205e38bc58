"""Seeded sampling has the distribution that its parameters name, and repeats draw by draw."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gem_core.policies.engine.sampling import Sampling, draw, policy_logprobs, sample

DRAWS = 1_000_000
LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -3.0, -4.0])
SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.6),
    Sampling(temperature=2.0),
    Sampling(top_k=4),
    Sampling(top_p=0.8),
    Sampling(temperature=1.3, top_k=6, top_p=0.9),
]
MILLIONS = [
    *(pytest.param(s, marks=pytest.mark.slow("oat")) for s in SAMPLINGS[:-1]),
    SAMPLINGS[-1],
]
"""In Oat's environment only the sampling that has everything; in TRL's all."""


def expected(sampling):
    """The probabilities, written down independently of the code under test."""
    weights = np.exp(LOGITS.double().numpy() / sampling.temperature)  # in descending order
    if sampling.top_k != -1:
        weights[sampling.top_k :] = 0
    shares = weights / weights.sum()
    kept = np.cumsum(shares) - shares < sampling.top_p
    return shares * kept / (shares * kept).sum()


@pytest.mark.parametrize("sampling", MILLIONS)
def test_a_million_draws_have_the_distribution(sampling):
    """Chi-square; half of the draws differ by seed, half by position."""
    probabilities = expected(sampling)
    counts = np.zeros(len(LOGITS))
    size = 100_000
    for first in range(0, DRAWS, size):
        numbers = range(first, first + size)
        by_seed = first < DRAWS // 2
        seeds = numbers if by_seed else [99] * size
        positions = [7] * size if by_seed else numbers
        tokens, logprobs = sample(LOGITS.expand(size, -1), sampling, seeds, positions)
        counts += np.bincount(tokens.numpy(), minlength=len(LOGITS))
        assert np.allclose(np.exp(logprobs.numpy()), probabilities[tokens.numpy()], atol=1e-6)
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    wanted = DRAWS * probabilities[possible]
    chi_square = ((counts[possible] - wanted) ** 2 / wanted).sum()
    freedom = possible.sum() - 1
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom)


def test_neighbouring_seeds_positions_and_tokens_are_independent():
    logits = torch.zeros(200_000, 4)
    tokens = sample(logits, Sampling(), range(200_000), [0] * 200_000)[0].numpy()
    other = sample(logits, Sampling(), range(200_000), [1] * 200_000)[0].numpy()
    for a, b in ((tokens[1:], tokens[:-1]), (tokens, other)):
        table = np.histogram2d(a, b, bins=4)[0]
        wanted = len(a) / 16
        assert ((table - wanted) ** 2 / wanted).sum() < 15 + 5 * np.sqrt(30)


def test_a_row_does_not_depend_on_the_others():
    logits = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0))
    sampling = Sampling(temperature=0.9, top_k=50, top_p=0.95)
    seeds = [977 * row for row in range(64)]
    tokens, logprobs = sample(logits, sampling, seeds, range(64))
    for row in (0, 13, 63):
        token, logprob = sample(logits[row : row + 1], sampling, [seeds[row]], [row])
        assert (int(token), float(logprob)) == (int(tokens[row]), float(logprobs[row]))


def test_the_draw_is_gumbel_max():
    """Small changes of the logits change few draws: that is why it was chosen."""
    from gem_core.policies.engine.philox import uniforms

    logits = torch.randn(5000, 50, generator=torch.Generator().manual_seed(1))
    tokens, _ = sample(logits, Sampling(), range(5000), [3] * 5000)
    gumbel = -np.log(-np.log(uniforms(range(5000), [3] * 5000, 50)))
    assert np.array_equal((logits.double().numpy() + gumbel).argmax(-1), tokens.numpy())
    moved, _ = sample(logits + 1e-4 * torch.randn_like(logits), Sampling(), range(5000), [3] * 5000)
    assert (moved != tokens).float().mean() < 1e-3


def test_temperature_zero_takes_the_most_likely_token():
    logits = torch.randn(9, 30, generator=torch.Generator().manual_seed(2))
    tokens, logprobs = sample(logits, Sampling(temperature=0.0), range(9), [0] * 9)
    assert torch.equal(tokens, logits.argmax(-1))
    assert logprobs.tolist() == [0.0] * 9


def test_ties_at_top_k_and_impossible_tokens():
    logprobs = policy_logprobs(torch.tensor([[1.0, 1.0, 0.0, -torch.inf]]), Sampling(top_k=1))
    assert logprobs[0, :2].exp().tolist() == pytest.approx([0.5, 0.5])
    assert set(draw(logprobs.exp().expand(1000, -1), range(1000), [0] * 1000).tolist()) == {0, 1}


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": 0}, {"top_k": -2}]
)
def test_impossible_sampling_is_refused(wrong):
    with pytest.raises(ValueError, match="Impossible"):
        Sampling(**wrong)
