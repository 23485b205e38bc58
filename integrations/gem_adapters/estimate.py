"""Run a recipe's estimator on a batch, as every adapter does in each training step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gem_core.advantages._arrays import FloatArray
from gem_core.advantages.batch import TurnBatch
from gem_core.advantages.describe import describe
from gem_core.advantages.estimators import gae, value_targets
from gem_core.advantages.registry import compute_advantages, estimator_needs
from gem_core.advantages.stats import Reduce, identity

if TYPE_CHECKING:
    from gem_core.runs.recipe.recipe import AlgorithmConfig, Recipe

_METRICS = {
    "advantage_mean": "advantage/mean",
    "advantage_std": "advantage/std",
    "advantage_cubed": "advantage/cubed",
    "constant": "advantage/constant",
    "singleton_groups": "groups/singleton",
}


class Estimate(NamedTuple):
    """The result of `estimate`.

    Attributes:
        advantages: float64 [N], 0 for masked turns.
        targets: float64 [N], the critic's targets A + V, from advantages that are not whitened;
            ``None`` where the batch has no values.
        metrics: ``advantage/*`` and ``groups/singleton``, over all ranks.
    """

    advantages: FloatArray
    targets: FloatArray | None
    metrics: dict[str, float]


def needs_critic(recipe: Recipe) -> bool:
    """Return whether the recipe's estimator needs values, so that the trainer trains a critic."""
    return estimator_needs(recipe.algorithm.estimator).values


def estimate(
    batch: TurnBatch, algorithm: AlgorithmConfig, *, reduce: Reduce = identity
) -> Estimate:
    """Return the advantages of ``batch``, the critic's targets and the metrics.

    Args:
        batch: the turns of this rank, with values if there is a critic.
        algorithm: ``recipe.algorithm``.
        reduce: the sum over ranks, see `compute_advantages`.

    Raises:
        AdvantageError: as in `compute_advantages`.
    """
    gamma = algorithm.gamma
    lam = algorithm.lam
    advantages = compute_advantages(
        algorithm.estimator, batch, gamma=gamma, lam=lam, reduce=reduce, **algorithm.options
    )
    targets = None
    if batch.values is not None:
        targets = value_targets(gae(batch, gamma=gamma, lam=lam), batch.values)
    described = describe(batch, advantages, reduce=reduce)
    metrics = {name: described[key] for key, name in _METRICS.items()}
    return Estimate(advantages, targets, metrics)
