"""gem_core's estimators behind the two hooks in which Oat computes advantages."""

from __future__ import annotations

import numpy as np
import torch
from oat.algorithms.ppo import PPOLearner
from torch import Tensor

from gem_core.adapters.estimate import Estimate
from gem_core.training.recipe import Recipe
from gem_oat.rows import Row, estimate_rows


class GemAdvantages(PPOLearner):
    """Oat's learner with the recipe's advantages, one number per turn.

    Attributes:
        recipe: the experiment.
        rows: this learner's rows of the step, in the order of Oat's batch.
        found: what the hooks made of them; None until Oat has called one.
    """

    recipe: Recipe
    rows: list[Row]
    found: Estimate | None

    def reduce(self, array: np.ndarray) -> np.ndarray:
        """Sum over learners, for gem_core's statistics."""
        return self.strategy.all_reduce(torch.tensor(array), op="sum").numpy()

    def compute_monte_carlo_advantages(self, rewards: Tensor, response_masks: Tensor) -> Tensor:
        """Advantage of each row [rows]; ``rewards`` [rows, tokens] holds Oat's KL penalty."""
        return torch.from_numpy(self._estimate(rewards).advantages).to(rewards)

    def compute_ppo_advantages(
        self, rewards: Tensor, input_ids: Tensor, att_mask: Tensor, response_masks: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Advantages, critic targets and old values [rows, tokens], one number per turn."""
        none = torch.zeros_like(response_masks)  # Oat's own GAE has nothing to do: only its values
        *_, values = super().compute_ppo_advantages(rewards, input_ids, att_mask, none)
        first = response_masks.int().argmax(1, keepdim=True)  # predicted at the last prompt token
        found = self._estimate(rewards, values.gather(1, first)[:, 0].double().cpu().numpy())
        per_turn = torch.from_numpy(np.stack([found.advantages, found.targets])).to(rewards)
        advantages, targets = per_turn[:, :, None]
        return advantages * response_masks, targets.expand_as(values), values

    def _estimate(self, rewards: Tensor, values: np.ndarray | None = None) -> Estimate:
        """Of the turns' own rewards in full precision, plus what Oat added to them (KL)."""
        exact = np.array([row.reward for row in self.rows])
        added = rewards.double().sum(1).cpu().numpy() - exact.astype(np.float32)
        self.found = estimate_rows(
            self.rows, self.recipe.algorithm, self.reduce, rewards=exact + added, values=values
        )
        return self.found
