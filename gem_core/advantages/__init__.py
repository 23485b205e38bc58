"""Advantage estimators: pure functions from per-turn arrays to one advantage per turn."""

from __future__ import annotations

from gem_core.advantages._arrays import dense_ids
from gem_core.advantages.batch import TurnBatch, on_valid_turns
from gem_core.advantages.describe import describe
from gem_core.advantages.estimators import (
    discounted_returns,
    dr_grpo,
    gae,
    grpo,
    rebn,
    reinforce,
    rloo,
    value_targets,
)
from gem_core.advantages.registry import (
    EstimatorNeeds,
    check_options,
    compute_advantages,
    declare_needs,
    estimator_needs,
    estimator_options,
    get_estimator,
    list_estimators,
    register_estimator,
)
from gem_core.advantages.stats import identity, moments, normalise
from gem_core.advantages.turns import Span, runs_of_ones, spread, spread_rows

__all__ = [
    "EstimatorNeeds",
    "Span",
    "TurnBatch",
    "check_options",
    "compute_advantages",
    "declare_needs",
    "dense_ids",
    "describe",
    "discounted_returns",
    "dr_grpo",
    "estimator_needs",
    "estimator_options",
    "gae",
    "get_estimator",
    "grpo",
    "identity",
    "list_estimators",
    "moments",
    "normalise",
    "on_valid_turns",
    "rebn",
    "register_estimator",
    "reinforce",
    "rloo",
    "runs_of_ones",
    "spread",
    "spread_rows",
    "value_targets",
]
