"""PPO's losses by their formulas, on padded rows of tokens. Source: arXiv 1707.06347."""

from __future__ import annotations

import torch
from torch import Tensor

from gem_core.runs.recipe.recipe import AlgorithmConfig
from gem_parity.traits import Traits


def policy_loss(
    algorithm: AlgorithmConfig,
    traits: Traits,
    logprobs: Tensor,
    old: Tensor,
    initial: Tensor | None,
    entropy: Tensor,
    advantages: Tensor,
    weights: tuple[Tensor, Tensor],
) -> Tensor:
    """Return the loss of a minibatch.

    Args:
        algorithm: clip, KL coefficient, entropy coefficient.
        traits: what the trainer does in its own way.
        logprobs: of the policy, [rows, tokens].
        old: of the policy at the beginning of the training step.
        initial: of the initial model; None without a KL term in the loss.
        entropy: of the policy's distribution.
        advantages: [rows, tokens].
        weights: of each token in a mean as the recipe's aggregation has it, and in one over tokens;
            both 0 where nothing is trained.
    """
    aggregated, per_token = weights
    ratio = torch.exp(logprobs - old)
    clipped = torch.clamp(ratio, 1 - algorithm.clip_low, 1 + algorithm.clip_high)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    loss = -(surrogate * aggregated).sum()
    bonus = aggregated if traits.entropy_mean == "as the loss" else per_token
    loss = loss - algorithm.entropy_coef * (entropy * bonus).sum()
    if initial is not None:
        term = kl_term(traits, logprobs, initial)
        mean = aggregated if traits.kl_mean == "as the loss" else per_token
        if traits.kl_times_ratio:
            term = term * ratio
        loss = loss + algorithm.kl_coef * (term * mean).sum()
    return loss


def kl_term(traits: Traits, logprobs: Tensor, initial: Tensor) -> Tensor:
    """Return the estimate of KL(policy || initial model) of each token."""
    difference = logprobs - initial
    if traits.kl_estimator == "k2":
        return difference.square() / 2
    estimate = torch.exp(-difference) - 1 + difference
    return estimate if traits.kl_limit is None else estimate.clamp(max=traits.kl_limit)


def value_loss(
    traits: Traits,
    values: Tensor,
    old: Tensor,
    targets: Tensor,
    *,
    clip: float,
    divisor: float,
) -> Tensor:
    """Return the critic's loss.

    Args:
        traits: what the trainer does in its own way.
        values: of the trained places.
        old: of the same places, at the beginning of the training step.
        targets: of the same places.
        clip: distance from the old value beyond which a new one counts as at that distance.
        divisor: number of places in the mean.
    """
    near = old + (values - old).clamp(-clip, clip)
    errors = torch.maximum((values - targets).square(), (near - targets).square())
    return traits.value_scale * errors.sum() / divisor
