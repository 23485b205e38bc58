"""gem_core's estimators behind the two hooks in which Oat computes advantages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from oat.algorithms.ppo import PPOLearner
from torch import Tensor

from gem_core.adapters.estimate import Estimate, estimate
from gem_core.adapters.token_rows import TokenRows
from gem_core.advantages import identity
from gem_core.advantages.stats import Reduce
from gem_core.errors import GemError
from gem_core.training.recipe import AlgorithmConfig, Recipe
from gem_oat.rows import Row

FloatArray = npt.NDArray[np.float64]


def estimate_rows(
    rows: Sequence[Row],
    algorithm: AlgorithmConfig,
    reduce: Reduce = identity,
    *,
    rewards: FloatArray | None = None,
    values: FloatArray | None = None,
) -> Estimate:
    """`gem_core.adapters.estimate` of the turns in ``rows``, over the turns of all ranks.

    Args:
        rows: the rows of this rank, in any order; episodes and groups are whole.
        algorithm: ``recipe.algorithm``.
        reduce: sum of a float64 array over ranks.
        rewards: float64 [rows], instead of the rows' own rewards (KL in the reward).
        values: float64 [rows], V at the last prompt token.

    Returns:
        Advantages and the critic's targets per row [rows], 0 for those that are no trained turn.

    Raises:
        AdvantageError: two rows are the same turn, or as `compute_advantages`.
    """
    if rewards is None:
        rewards = np.array([row.reward for row in rows], dtype=np.float64)
    columns = TokenRows(  # tables of one column: a row has one turn
        labels=[row.label for row in rows],
        rewards=_column(rewards),
        mask=_column([not row.excluded for row in rows]),
        values=None if values is None else _column(values),
        bootstraps=None if values is None else _bootstraps(rows, values),
    )
    estimated = estimate(columns.batch, algorithm, reduce=reduce)
    targets = estimated.targets
    return Estimate(
        advantages=columns.spread(estimated.advantages)[:, 0],
        targets=None if targets is None else columns.spread(targets)[:, 0],
        metrics=estimated.metrics,
    )


class GemAdvantages(PPOLearner):
    """Oat's learner with the recipe's advantages, one number per turn.

    Attributes:
        recipe: the experiment.
        rows: this learner's rows of the step, in the order of Oat's batch.
        summary: the estimator's metrics of the step; empty until Oat has called a hook.
        turn_advantages: the advantage of each row.
    """

    recipe: Recipe
    rows: list[Row]
    turn_advantages: list[float]
    summary: dict[str, float]

    def reduce(self, array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Sum over learners, for gem_core's statistics."""
        return self.strategy.all_reduce(torch.tensor(array), op="sum").numpy()

    def compute_monte_carlo_advantages(self, rewards: Tensor, response_masks: Tensor) -> Tensor:
        """Advantage of each row [rows]; ``rewards`` [rows, tokens] holds Oat's KL penalty."""
        return torch.from_numpy(self._estimate(rewards).advantages).to(rewards)

    def compute_ppo_advantages(
        self, rewards: Tensor, input_ids: Tensor, att_mask: Tensor, response_masks: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Advantages, critic targets and old values [rows, tokens], one number per turn."""
        no_actions = torch.zeros_like(response_masks)  # of Oat's GAE only the values are used
        *_, values = super().compute_ppo_advantages(rewards, input_ids, att_mask, no_actions)
        first = response_masks.int().argmax(1, keepdim=True)  # predicted at the last prompt token
        row_values = values.gather(1, first)[:, 0].double().cpu().numpy()
        estimated = self._estimate(rewards, row_values)
        assert estimated.targets is not None  # the rows have values
        advantages = torch.from_numpy(estimated.advantages).to(rewards)[:, None]
        targets = torch.from_numpy(estimated.targets).to(rewards)[:, None]
        return advantages * response_masks, targets.expand_as(values), values

    def turn_rewards(self, rewards: Tensor) -> FloatArray:
        """Reward of each row [rows]: the environment's in full precision, and what Oat added.

        Args:
            rewards: float32 [rows, tokens], Oat's: the turn's reward, a KL penalty, a scale.
        """
        exact = np.array([row.reward for row in self.rows])
        # Oat's fused head gives log-probabilities of the reference model that require a gradient.
        added = rewards.detach().double().sum(1).cpu().numpy() - exact.astype(np.float32)
        return exact + added

    def _estimate(self, rewards: Tensor, values: FloatArray | None = None) -> Estimate:
        estimated = estimate_rows(
            self.rows,
            self.recipe.algorithm,
            self.reduce,
            rewards=self.turn_rewards(rewards),
            values=values,
        )
        self.summary = estimated.metrics
        self.turn_advantages = estimated.advantages.tolist()
        return estimated


def require_installed(learner: GemAdvantages) -> None:
    """Raise GemError unless Oat asked gem_core for the advantages of the update under way.

    Oat's own advantages with one sample per prompt are identically 0, without an error.
    """
    if not learner.summary:
        raise GemError(
            "Oat did not ask gem_core for advantages, so nothing would be trained. Remove what "
            "overrides compute_monte_carlo_advantages or compute_ppo_advantages of "
            f"{type(learner).__name__}."
        )


def _column(numbers: Sequence[bool] | FloatArray) -> npt.NDArray[np.float64]:
    """``numbers`` [rows] as a table [rows, 1]."""
    return np.asarray(numbers, dtype=np.float64).reshape(-1, 1)


def _bootstraps(rows: Sequence[Row], values: FloatArray) -> dict[int, float]:
    """V(s_T) by episode: what the critic read at the rows of bootstrap states."""
    return {
        row.episode: float(value)
        for row, value in zip(rows, values, strict=True)
        if row.bootstrap_state
    }
