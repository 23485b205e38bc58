"""gem_core's estimators over Oat's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gem_core.advantages import TurnBatch, compute_advantages, describe, value_targets
from gem_core.recipe import Recipe
from gem_oat.rollout import Row

Floats = npt.NDArray[np.float64]


def row_advantages(
    recipe: Recipe,
    rows: Sequence[Row],
    reduce: Any,
    *,
    rewards: Floats | None = None,
    values: Floats | None = None,
) -> tuple[Floats, Floats, dict[str, float]]:
    """Advantage of every row by the recipe's estimator, over the turns of all ranks.

    Args:
        recipe: estimator, gamma, lam, options.
        rows: the rows of this rank, in any order; episodes and groups are whole.
        reduce: sum of a float64 array over ranks.
        rewards: [rows], instead of the rows' own rewards (KL in the reward).
        values: [rows], V at the last prompt token.

    Returns:
        Advantages [rows] (0 for excluded rows), the critic's targets [rows] (0 without values),
        and `gem_core.advantages.describe` of the batch.
    """
    rewards = np.array([row.reward for row in rows]) if rewards is None else rewards
    turns = [n for n, row in enumerate(rows) if row.episode >= 0 and not row.state]
    turns.sort(key=lambda n: rows[n][:2])
    states = {row.episode: n for n, row in enumerate(rows) if row.state}
    kept, critic = [rows[n] for n in turns], {}
    if values is not None:
        ends = [states.get(row.episode) for row in kept]
        bootstrap = np.array([0.0 if n is None else values[n] for n in ends])
        critic = {"values": values[turns], "bootstrap": bootstrap}
    batch = TurnBatch(
        rewards=rewards[turns],
        episode=np.array([row.episode for row in kept], dtype=np.int64),
        group=np.array([row.group for row in kept], dtype=np.int64),
        env=np.array([row.env for row in kept], dtype=np.int64),
        mask=np.array([not row.excluded for row in kept], dtype=bool),
        **critic,
    )
    algorithm = recipe.algorithm
    common: dict[str, Any] = {"gamma": algorithm.gamma, "lam": algorithm.lam, "reduce": reduce}
    found = compute_advantages(algorithm.estimator, batch, **common, **algorithm.options)
    advantages, targets = np.zeros(len(rows)), np.zeros(len(rows))
    advantages[turns] = found
    if values is not None:  # targets are made of advantages that are not whitened
        raw = compute_advantages(algorithm.estimator, batch, **common)
        targets[turns] = value_targets(raw, values[turns])
    return advantages, targets, describe(batch, found, reduce=reduce)
