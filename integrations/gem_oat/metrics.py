"""Oat's logs -> the common metrics of the run directory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from gem_adapters.run_log import log_step
from gem_core.episodes.data import Episode
from gem_core.episodes.metrics import episode_metrics
from gem_core.runs.directory.run_dir import RunDir

NAMES = {
    "train/learn_batch_time": "time/update",
    "actor/total_time": "time/rollout",
}
"""Name in Oat's logs -> common name."""


class RunLog:
    """Writes a line of metrics per training step, and sampled episodes.

    Args:
        run: the run directory.
        wandb: the module, where Oat logs there too.
    """

    def __init__(self, run: RunDir, wandb: Any = None) -> None:
        self.run = run
        self.wandb = wandb
        self._step_began = time.perf_counter()

    def log(
        self,
        step: int,
        episodes: Sequence[Episode],
        logs: Mapping[str, float],
        metrics: Mapping[str, float],
    ) -> None:
        """Write training step ``step``, which ends now.

        Args:
            step: counts from 1.
            episodes: those of all ranks, in task order.
            logs: what Oat logged of the step.
            metrics: the adapter's and the estimator's, under the common names; ``rows/all`` is the
                rows of all ranks, padding included.

        Raises:
            GemError: a loss or the gradient is not finite.
        """
        trained = sum(any(part.loss_mask) for episode in episodes for part in episode.segments)
        line = {
            **self.common(logs),
            **metrics,
            "rows/masked": metrics["rows/all"] - trained,
            "time/step": self._step_seconds(),
        }
        log_step(self.run, step, episodes, line)
        if self.wandb is not None:
            self.wandb.log({**episode_metrics(episodes), **line}, step=step)

    @staticmethod
    def common(logs: Mapping[str, float]) -> dict[str, float]:
        """Translate Oat's logs of one step; what has no common name is left out."""
        return {name: float(logs[native]) for native, name in NAMES.items() if native in logs}

    def _step_seconds(self) -> float:
        """Wall time since the last step ended, or since the log was opened."""
        began = self._step_began
        self._step_began = time.perf_counter()
        return self._step_began - began
