"""Metrics of a batch and its advantages."""

from __future__ import annotations

import numpy as np

from gem_core.advantages._arrays import FloatArray
from gem_core.advantages.batch import TurnBatch
from gem_core.advantages.stats import Reduce, identity, moments, reduced, sums_by
from gem_core.errors import AdvantageError


def describe(
    batch: TurnBatch, advantages: FloatArray, *, reduce: Reduce = identity
) -> dict[str, float]:
    """Summarise a batch over all ranks; the figures reveal a batch that trains nothing.

    ``reduce`` is called six times, also on a rank without turns.

    Returns:
        ``turns`` and ``episodes`` that are not masked, ``masked_turns``, ``groups``,
        ``singleton_groups`` (episodes alone in their group: no signal from GRPO or RLOO),
        ``return_mean`` and ``return_std`` (undiscounted, per episode), ``advantage_mean``,
        ``advantage_std``, ``advantage_cubed`` (mean of the cubes; unlike mean and spread it is not
        fixed by ReBN, so that it shows other rewards) and ``constant`` (1.0 when every advantage is
        0, so that nothing can be learned from the batch).
    """
    advantages = np.asarray(advantages, dtype=np.float64)
    if advantages.shape != (len(batch),):
        raise AdvantageError(f"describe got shape {advantages.shape} for {len(batch)} turns.")
    valid = batch.valid()
    kept = advantages if batch.mask is None else advantages[batch.mask]
    starts = valid.starts
    episodes = int(starts.sum())
    episode_returns = sums_by(np.cumsum(starts) - 1, valid.rewards, episodes)
    _, sizes = np.unique(valid.group_ids[starts], return_counts=True)
    counts = reduced(
        np.array(
            [len(valid), episodes, len(batch) - len(valid), sizes.size, (sizes == 1).sum()],
            dtype=np.float64,
        ),
        reduce,
    )
    sums = reduced(np.array([np.count_nonzero(kept), (kept**3).sum()], dtype=np.float64), reduce)
    of_returns = moments(episode_returns, reduce=reduce)
    of_advantages = moments(kept, reduce=reduce)
    names = ("turns", "episodes", "masked_turns", "groups", "singleton_groups")
    return {
        **dict(zip(names, counts.tolist(), strict=True)),
        "return_mean": float(of_returns.mean[0]),
        "return_std": float(of_returns.std[0]),
        "advantage_mean": float(of_advantages.mean[0]),
        "advantage_std": float(of_advantages.std[0]),
        "advantage_cubed": float(sums[1] / max(1.0, counts[0])),
        "constant": float(sums[0] == 0),
    }
