"""What a trainer's released code does in its own way, as data that the reference can follow.

The default of every field is what a recipe means. An adapter that differs declares it as
``TRAITS`` in its replay module; the parity table prints each difference by name, and the replay
is red unless the reference with these differences, and no others, gives the trainer's weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

from gem_core.runs.recipe.recipe import Recipe


@dataclass(frozen=True)
class Traits:
    """How a trainer's update differs from the recipe's.

    Attributes:
        divisor: what a mean over a minibatch divides by: the minibatch's own tokens or sequences;
            the same, where sequences that fill the last minibatch up to the size of the others, a
            multiple of ``batch.micro_batch``, and train nothing count, too; or the share of all
            the batch's that a minibatch has on average.
        divided: what a batch's minibatches are made of: the sequences of all episodes, so that one
            may hold only episodes that failed and is then a step with the gradient 0; or the
            sequences with a trained token, in minibatches of one size that is rounded up, so that
            there may be fewer of them.
        rate_over: what the schedule of the learning rate counts: optimizer steps, or batches, where
            each of a batch's N optimizer steps is 1/N. They differ where a batch has fewer
            minibatches than the recipe says, see ``divided``.
        kl_mean: whether the KL term is averaged as the policy's loss is, or over the minibatch's
            own tokens always.
        kl_estimator: of the KL term in the loss: k2 = (log ratio)^2 / 2, k3 = exp(-x) - 1 + x.
        kl_limit: largest estimate of one token's KL, beyond which it has no gradient; None = none.
        kl_times_ratio: whether the KL term is multiplied by the ratio of new and old policy.
        entropy_mean: whether the entropy is averaged as the loss is, or over the minibatch's own
            tokens always.
        decayed: the policy's weights that weight decay shrinks: all, or matrices only.
        value_decayed: the same of the critic.
        adam_eps: epsilon of Adam.
        value_scale: factor of the mean squared error.
        valued_ends: which states in which a limit cut an episode the critic values: all, or those
            that continue the last sequence of their episode, where the others count as 0.
    """

    divisor: Literal["minibatch", "padded minibatch", "batch share"] = "minibatch"
    divided: Literal["episodes", "trained episodes"] = "episodes"
    rate_over: Literal["optimizer steps", "batches"] = "optimizer steps"
    kl_mean: Literal["as the loss", "tokens"] = "as the loss"
    kl_estimator: Literal["k2", "k3"] = "k3"
    kl_limit: float | None = None
    kl_times_ratio: bool = False
    entropy_mean: Literal["as the loss", "tokens"] = "as the loss"
    decayed: Literal["all", "matrices"] = "all"
    adam_eps: float = 1e-8
    value_decayed: Literal["all", "matrices"] = "all"
    value_scale: float = 0.5
    valued_ends: Literal["all", "continued sequences"] = "all"

    def minibatch_size(self, recipe: Recipe, sequences: int) -> int:
        """Return the size of the minibatches of a batch, where it is one size, rounded up.

        Args:
            recipe: the experiment.
            sequences: those of the batch with a trained token.
        """
        unit = recipe.batch.micro_batch or 1 if self.divisor == "padded minibatch" else 1
        return unit * math.ceil(sequences / (unit * recipe.algorithm.minibatches))

    def differences(self) -> dict[str, Any]:
        """Return the fields that differ from the recipe's meaning, with their values."""
        standard = Traits()
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != getattr(standard, field.name)
        }
