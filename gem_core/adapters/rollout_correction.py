"""Weights of tokens that correct for an engine whose probabilities are not the trainer's.

Source: truncated importance sampling, https://fengyao.notion.site/off-policy-rl.
"""

from __future__ import annotations

from typing import Any

from gem_core.training.recipe import AlgorithmConfig


def truncated_weights(algorithm: AlgorithmConfig, old: Any, rollout: Any, mask: Any) -> Any:
    """Return min(exp(old - rollout), ``algorithm.rollout_cap``) per token, and 1 off the mask.

    Args:
        algorithm: has the cap.
        old: log-probabilities by the trainer before the step's first update, [rows, tokens].
        rollout: those that the engine reported.
        mask: not 0 on action tokens.
    """
    difference = (old - rollout.to(old)).masked_fill(~mask.bool(), 0.0)
    return difference.exp().clamp(max=algorithm.rollout_cap)
