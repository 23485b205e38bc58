"""OpenRLHF's status of a training step -> the common metrics of the run directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem_adapters.run_log import log_evaluation, log_step
from gem_core.episodes.data import Episode
from gem_core.runs.directory.run_dir import RunDir

NAMES = {
    "is_filter_ratio": "rollout/filtered",
    "timing/step_total": "time/step",
    "timing/generation": "time/rollout",
    "timing/make_experience": "time/experience",
    "timing/ppo_train": "time/update",
    "timing/broadcast": "time/sync",
}
"""OpenRLHF's name -> the common name."""


PREFIX = "gem/"
"""What common names begin with among OpenRLHF's own, see `gem_openrlhf.updates`."""


class RunLog:
    """Writes a line of metrics per training step, sampled episodes, and evaluations.

    Args:
        run: the run directory.
    """

    def __init__(self, run: RunDir) -> None:
        self.run = run

    def log_step(
        self,
        step: int,
        episodes: Sequence[Episode],
        estimator_metrics: Mapping[str, float],
        status: Mapping[str, Any],
    ) -> None:
        """Write a training step.

        Args:
            step: counts from 1.
            episodes: the batch, in task order.
            estimator_metrics: see `gem_adapters.estimate.Estimate`.
            status: what OpenRLHF logs of the step, see also `gem_openrlhf.updates`.

        Raises:
            GemError: a loss or the gradient is not finite.
        """
        metrics = {
            name: float(status[native]) for native, name in NAMES.items() if native in status
        }
        for name, number in status.items():
            if name.startswith(PREFIX):
                metrics[name.removeprefix(PREFIX)] = float(number)
        log_step(self.run, step, episodes, {**estimator_metrics, **metrics})

    def log_evaluation(self, step: int, episodes: Sequence[Episode]) -> None:
        """Write an evaluation inside training."""
        log_evaluation(self.run, step, episodes)
