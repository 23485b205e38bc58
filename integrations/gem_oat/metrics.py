"""Oat's logs under gem_core's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gem_core.episodes.data import Episode
from gem_core.episodes.metrics import episode_metrics

NAMES = {
    "train/policy_grad_norm": "grad_norm",  # before clipping, the largest of the updates
    "train/pg_clipfrac": "clip_ratio",
    "train/learn_batch_time": "time/update",
    "actor/total_time": "time/rollout",
}
"""Name in Oat's logs -> ours."""


def step_metrics(
    episodes: Sequence[Episode], logs: Mapping[str, float], own: Mapping[str, float]
) -> dict[str, float]:
    """Metrics of one training step.

    Args:
        episodes: of all ranks.
        logs: what Oat logged.
        own: the adapter's and the estimator's, under gem_core's names; ``rows/all`` is all rows.
    """
    renamed = {name: float(logs[key]) for key, name in NAMES.items() if key in logs}
    metrics = {**episode_metrics(episodes), **renamed, **own}
    trained = metrics["turns/total"] - metrics["turns/masked"]
    return {**metrics, "rows/masked": metrics["rows/all"] - trained}
