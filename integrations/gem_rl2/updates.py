"""What RL2's optimizer steps saw: the metrics of an update that RL2 logs in another meaning.

RL2 logs a loss with the KL term and the entropy bonus in it, and averages the rest as the loss is
averaged. The tensors of its own loss are read here instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch.distributed as dist

from gem_adapters.rollout_correction import truncated_weights
from gem_adapters.update_means import UpdateMeans
from gem_core.runs.recipe.recipe import AlgorithmConfig


class Updates:
    """Collects the forward passes of a training step's optimizer steps.

    Args:
        clip: RL2's range of the clip.

    Attributes:
        algorithm: the recipe's, for the correction; None until the adapter sets it.
    """

    def __init__(self, clip: float) -> None:
        self.means = UpdateMeans((clip, clip))
        self.algorithm: AlgorithmConfig | None = None

    @property
    def corrects(self) -> bool:
        """Whether tokens are weighted for the engine's probabilities."""
        return self.algorithm is not None and self.algorithm.rollout_correction == "tis"

    def correct(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Return the batch with weighted advantages.

        The weight is a constant factor of a token's loss, and so of its advantage. RL2's own
        ``tis_coef`` takes it from the policy of each update, not from that before the first.
        """
        assert self.algorithm is not None
        weights = truncated_weights(
            self.algorithm, tensors["old_logps"], tensors["llm_logps"], tensors["action_mask"]
        )
        return {**tensors, "advantages": tensors["advantages"] * weights}

    def add(self, minibatch: dict[str, Any], logps: Any, entropy: Any) -> None:
        """Add a forward pass: RL2's packed tensors, and what its forward pass returned."""
        mask = minibatch["action_mask"]
        self.means.add(
            mask=mask,
            logprobs=logps,
            old=minibatch.get("old_logps", logps),
            advantages=minibatch["advantages"],
            entropy=entropy,
            initial=minibatch.get("ref_logps"),
            rollout=minibatch["llm_logps"],
        )

    def finish(self) -> dict[str, float]:
        """Return the metrics of the training step, and begin the next one; a collective call."""
        return self.means.finish(_sum_over_ranks)


def _sum_over_ranks(array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, array)
    total: npt.NDArray[np.float64] = np.sum(parts, axis=0)
    return total
