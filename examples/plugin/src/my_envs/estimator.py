"""An estimator of advantages. All trainers call it and put each advantage on the turn's tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from gem_core.advantages import TurnBatch, declare_needs, discounted_returns, moments
from gem_core.advantages.stats import Reduce


@declare_needs(ignores=("lam",))
def centred(
    batch: TurnBatch, *, gamma: float, lam: float, reduce: Reduce, limit: float = 1.0
) -> npt.NDArray[np.float64]:
    """Compute the discounted return of a turn minus the mean of all turns, within a limit.

    Args:
        batch: the turns of this rank; it has none where only other ranks have some.
        gamma: discount per turn.
        lam: not used.
        reduce: the sum over ranks, so that the mean is that of all turns of all ranks.
        limit: the largest advantage, and its negative the smallest.
    """
    returns = discounted_returns(batch, gamma)
    mean = moments(returns, reduce=reduce).mean
    return np.clip(returns - mean, -limit, limit)
