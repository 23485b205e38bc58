"""Oat's logs under gem_core's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gem_core.episode import Episode
from gem_core.metrics import episode_metrics

NAMES = {
    "train/policy_grad_norm": "grad_norm",  # before clipping, the largest of the updates
    "train/pg_clipfrac": "clip_fraction",
    "advantage_mean": "advantage/mean",
    "advantage_std": "advantage/std",
    "constant": "advantage/constant",
    "masked_turns": "turns/masked",
    "singleton_groups": "groups/singleton",
}
"""Name in Oat's logs, or in `gem_core.advantages.describe`, -> ours."""
OWN = ("entropy", "lr", "loss/", "rows/", "time/")


def step_metrics(episodes: Sequence[Episode], logs: Mapping[str, float]) -> dict[str, float]:
    """Metrics of one training step.

    Args:
        episodes: of all ranks.
        logs: what Oat and the adapter logged, `describe` of the batch; ``rows/all`` is all rows.
    """
    metrics = episode_metrics(episodes)
    metrics |= {name: float(logs[key]) for key, name in NAMES.items() if key in logs}
    metrics |= {key: float(value) for key, value in logs.items() if key.startswith(OWN)}
    trained = metrics["turns/total"] - metrics["turns/masked"]
    return {**metrics, "rows/masked": metrics["rows/all"] - trained}
