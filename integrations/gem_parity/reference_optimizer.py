"""AdamW, gradient clipping and learning rates by their formulas: the reference of the optimizers.

Sources: Adam, arXiv 1412.6980; decoupled weight decay, arXiv 1711.05101.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

import torch

from gem_core.runs.recipe.recipe import Recipe
from gem_parity.traits import Traits


class ReferenceAdamW:
    """AdamW with the recipe's clipping and schedule.

    Args:
        recipe: the experiment.
        traits: what the trainer does in its own way.
        weights: name -> parameter, changed in place.
        lr: peak learning rate.
        decayed: the weights that weight decay shrinks: all, or matrices only.

    Attributes:
        updates: optimizer steps so far.
        batches: batches so far, with the part of the current one that is done.
        batch_updates: optimizer steps of the current batch; their owner sets it.
    """

    def __init__(
        self,
        recipe: Recipe,
        traits: Traits,
        weights: Mapping[str, torch.Tensor],
        lr: float,
        decayed: Literal["all", "matrices"],
    ) -> None:
        self.recipe = recipe
        self.decayed = decayed
        self.traits = traits
        self.weights = dict(weights)
        self.lr = lr
        self.updates = 0
        self.batches = Fraction(0)
        self.batch_updates = 1
        self.first = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self.second = {name: torch.zeros_like(weight) for name, weight in weights.items()}

    def step(self) -> float:
        """Make one optimizer step from the gradients; return their norm before clipping."""
        algorithm = self.recipe.algorithm
        gradients = {name: weight.grad for name, weight in self.weights.items()}
        squares = sum(float(g.double().square().sum()) for g in gradients.values() if g is not None)
        norm = math.sqrt(squares)
        shrink = min(1.0, algorithm.max_grad_norm / (norm + 1e-6))
        rate = self.rate()
        self.updates += 1
        self.batches += Fraction(1, self.batch_updates)
        with torch.no_grad():
            for name, gradient in gradients.items():
                if gradient is not None:
                    self._move(name, gradient * shrink, rate)
                    self.weights[name].grad = None
        return norm

    def _move(self, name: str, gradient: torch.Tensor, rate: float) -> None:
        algorithm = self.recipe.algorithm
        beta1, beta2 = algorithm.betas
        weight = self.weights[name]
        if self.decayed == "all" or weight.ndim >= 2:
            weight.mul_(1 - rate * algorithm.weight_decay)
        first = self.first[name].mul_(beta1).add_(gradient, alpha=1 - beta1)
        second = self.second[name].mul_(beta2).add_(gradient.square(), alpha=1 - beta2)
        mean = first / (1 - beta1**self.updates)
        variance = second / (1 - beta2**self.updates)
        weight.sub_(rate * mean / (variance.sqrt() + self.traits.adam_eps))

    def rate(self) -> float:
        """Return the learning rate of the coming optimizer step."""
        algorithm = self.recipe.algorithm
        per_step = algorithm.epochs * algorithm.minibatches
        done: Fraction | int = self.updates
        if self.traits.rate_over == "batches":
            done = self.batches * per_step
        warmup = algorithm.warmup_steps * per_step
        total = self.recipe.train.steps * per_step
        if done < warmup:
            return self.lr * done / warmup
        left = (total - done) / max(1, total - warmup)
        if algorithm.lr_schedule == "constant":
            return self.lr
        if algorithm.lr_schedule == "linear":
            return self.lr * left
        return self.lr * 0.5 * (1 - math.cos(math.pi * left))
