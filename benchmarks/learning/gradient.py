"""The policy gradient of single batches: how much of it is signal, and how much is noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gem_adapters.turn_batch import turn_batch
from gem_core.advantages import compute_advantages
from gem_core.episodes.data import Episode
from gem_core.runs.recipe.recipe import AlgorithmConfig


def signal_and_noise(
    model: Any, batches: Sequence[Sequence[Episode]], algorithm: AlgorithmConfig
) -> dict[str, float | None]:
    """Estimate the mean and the variance of a batch's gradient at one policy.

    With g_k the gradient of batch k of K, the squared length of the mean gradient is estimated
    without bias by the mean of g_j . g_k over j != k; the noise is the trace of the covariance.

    Args:
        model: the causal language model that played all batches.
        batches: episodes of equally many tasks each.
        algorithm: estimator and discount.

    Returns:
        ``signal`` and ``noise``: squared lengths, in the units of the gradient; ``cosine``: mean
        cosine between the gradients of two batches; ``episodes_for_one``: how many episodes a
        batch needs for a signal as large as its noise (``None``: no signal was seen).
    """
    gradients = np.stack([batch_gradient(model, batch, algorithm) for batch in batches])
    count = len(gradients)
    squares = (gradients**2).sum(axis=1)
    signal = float(((gradients.sum(axis=0) ** 2).sum() - squares.sum()) / (count * (count - 1)))
    noise = float(squares.mean()) - signal
    units = gradients / np.sqrt(squares)[:, None]
    cosine = float(((units.sum(axis=0) ** 2).sum() - count) / (count * (count - 1)))
    size = len(batches[0])
    needed = size * noise / signal if signal > 0 else None
    return {"signal": signal, "noise": noise, "cosine": cosine, "episodes_for_one": needed}


def batch_gradient(
    model: Any, episodes: Sequence[Episode], algorithm: AlgorithmConfig
) -> np.ndarray:
    """Return the gradient of the mean of advantage x log-probability over action tokens, [P]."""
    turns = turn_batch(episodes)
    advantages = compute_advantages(algorithm.estimator, turns, gamma=algorithm.gamma)
    model.zero_grad(set_to_none=True)
    _weighted_loss(model, episodes, advantages).backward()
    parts = [p.grad.flatten() for _, p in sorted(model.named_parameters()) if p.grad is not None]
    return torch.cat(parts).double().numpy()


def _weighted_loss(model: Any, episodes: Sequence[Episode], advantages: np.ndarray) -> torch.Tensor:
    segments = [segment for episode in episodes for segment in episode.segments]
    length = max(len(segment.token_ids) for segment in segments)
    ids = torch.zeros(len(segments), length, dtype=torch.long)
    weights = torch.zeros(len(segments), length)
    acted = torch.zeros(len(segments), length, dtype=torch.bool)
    row = 0
    first = 0
    for episode in episodes:
        for segment in episode.segments:
            ids[row, : len(segment.token_ids)] = torch.tensor(segment.token_ids)
            for turn, start, end in segment.spans:
                weights[row, start:end] = float(advantages[first + turn])
                acted[row, start:end] = True
            row += 1
        first += len(episode.turns)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    chosen = acted[:, 1:]
    logits = model.lm_head(hidden[chosen])
    losses = torch.nn.functional.cross_entropy(logits, ids[:, 1:][chosen], reduction="none")
    return (losses * weights[:, 1:][chosen]).mean()
