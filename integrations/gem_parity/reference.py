"""The reference in plain PyTorch: the loss that every adapter must reproduce.

It is PPO's loss at ratio 1 (in the first update on a batch, where the clip is inactive):
``loss = -sum_t A_t * ratio_t / N`` over all trained tokens, with
``ratio_t = exp(logp_t - stop_gradient(logp_t)) = 1`` and N by ``algorithm.loss_aggregation``. Its
gradient is the policy gradient, ``-sum_t A_t * grad logp_t / N``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gem_core.runs.recipe.recipe import Recipe
from gem_parity.reference_batch import cut_off
from gem_parity.replay import Replay, Row


def reference(recipe: Recipe, rows: Sequence[Row], model: Any) -> Replay:
    """Return loss and gradients of ``rows`` under ``model``, a causal language model in float32."""
    model.zero_grad(set_to_none=True)
    total = torch.zeros((), dtype=torch.float64)
    for row, weights in zip(rows, token_weights(recipe, rows), strict=True):
        ids = torch.tensor([row.token_ids])
        logits = model(input_ids=ids).logits[0, :-1].float() / recipe.sampling.temperature
        logits = logits + cut_off([row.support], logits.shape)[0]
        logp = torch.log_softmax(logits, dim=-1).gather(1, ids[0, 1:, None])[:, 0]
        scale = torch.from_numpy(row.advantages[1:] * weights[1:])
        ratio = torch.exp(logp - logp.detach())
        total = total - (scale * ratio.double()).sum()
    total.backward()
    gradients = {
        name: p.grad.detach().double().numpy().copy()
        for name, p in model.named_parameters()
        if p.grad is not None
    }
    return Replay(list(rows), float(total.detach()), gradients)


def token_weights(recipe: Recipe, rows: Sequence[Row]) -> list[np.ndarray]:
    """Return the weight of each token in the loss by the recipe's aggregation, per row."""
    masks = [np.asarray(row.loss_mask, dtype=np.float64) for row in rows]
    algorithm = recipe.algorithm
    if algorithm.loss_aggregation == "token":
        count = sum(mask.sum() for mask in masks)
        return [mask / count for mask in masks]
    if algorithm.loss_aggregation == "sequence":
        return [mask / mask.sum() / len(rows) for mask in masks]
    assert algorithm.loss_constant is not None  # validate() guarantees it
    return [mask / algorithm.loss_constant / len(rows) for mask in masks]


def compare(
    gradients: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> tuple[float, float]:
    """Return ``(cosine, norm ratio)`` of two gradients of the same parameters.

    Raises:
        ValueError: the names of the parameters differ, so that the comparison would be incomplete.
    """
    if gradients.keys() != expected.keys():
        raise ValueError(f"Different parameters: {sorted(gradients.keys() ^ expected.keys())}.")
    a = np.concatenate([gradients[name].ravel() for name in sorted(gradients)])
    b = np.concatenate([expected[name].ravel() for name in sorted(gradients)])
    norm_a = float(np.linalg.norm(a))
    norm_b = float(np.linalg.norm(b))
    return float(a @ b) / (norm_a * norm_b), norm_a / norm_b
