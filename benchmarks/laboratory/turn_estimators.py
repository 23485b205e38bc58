"""Two estimators that are not gem-core's: what is subtracted at each turn index.

They are registered as any package's would be. `turn_index` is the construction that verl's issue
7244 reports as biased: rewards are centred at each turn index over the episodes of the group that
reach it, and the centred rewards of an episode are summed from the turn on, so that the episode's
own end decides how many means are subtracted. `turn_loo` subtracts, from the return that follows a
turn, the mean of that return over the *other* episodes of the group that reach the turn: one number
that does not depend on what the episode does from there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from processes import FloatArray

from gem_core.advantages import TurnBatch, discounted_returns, register_estimator


@register_estimator("turn_index", needs_groups=True, ignores=("lam",))
def turn_index(
    batch: TurnBatch, *, gamma: float, lam: float = 1.0, reduce: Any = None
) -> FloatArray:
    """Sum, from each turn on, the rewards minus their mean at the turn index in the group."""
    cell = _cells(batch)
    count = np.bincount(cell)
    centred = (
        batch.rewards - (np.bincount(cell, weights=batch.rewards) / np.maximum(count, 1))[cell]
    )
    return discounted_returns(TurnBatch(centred, batch.episode), gamma)


@register_estimator("turn_loo", needs_groups=True, ignores=("lam",))
def turn_loo(batch: TurnBatch, *, gamma: float, lam: float = 1.0, reduce: Any = None) -> FloatArray:
    """Subtract the mean return of the group's other episodes at the same turn index.

    Where no other episode reaches the turn, nothing is subtracted.
    """
    returns = discounted_returns(batch, gamma)
    cell = _cells(batch)
    others = np.bincount(cell)[cell] - 1
    total = np.bincount(cell, weights=returns)[cell] - returns
    return returns - np.where(others > 0, total / np.maximum(others, 1), 0.0)


def _cells(batch: TurnBatch) -> FloatArray:
    """Return a number of each turn's group and turn index, the same for equal ones."""
    turns = np.arange(len(batch))
    place = turns - np.maximum.accumulate(np.where(batch.starts, turns, 0))
    group = np.unique(batch.group_ids, return_inverse=True)[1]
    return group * (int(place.max(initial=0)) + 1) + place
