"""verl's log -> the common metrics of the run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gem_adapters.run_log import log_step
from gem_core.episodes.data import Episode
from gem_core.runs.directory.run_dir import RunDir
from gem_verl.advantages import SUMMARY

PREFIX = "gem/"
"""What common metrics begin with among verl's own, so that all of verl's loggers have them."""
NAMES = {
    "timing_s/step": "time/step",
    "timing_s/gen": "time/rollout",
    "timing_s/update_actor": "time/update",
    "timing_s/update_weights": "time/sync",
    "timing_s/old_log_prob": "time/logprobs",
    "timing_s/save_checkpoint": "time/checkpoint",
    "actor/pg_loss": "loss/policy",
    "critic/vf_loss": "loss/value",
    "actor/grad_norm": "grad_norm",
    "critic/grad_norm": "grad_norm/critic",
    "actor/lr": "lr",
}
"""Name in verl -> common name; what is not listed stays in verl's own logs."""


class RunLog:
    """A backend of verl's ``Tracking`` that writes ``metrics.jsonl`` and ``episodes.jsonl.gz``.

    Args:
        run: the run directory.

    Attributes:
        after_step: is called with the number of each step that was logged.
    """

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.episodes: Sequence[Episode] = []
        self.after_step: Callable[[int], None] = lambda step: None

    def begin(self, episodes: Sequence[Episode]) -> None:
        """Take the episodes of the step under way, in task order."""
        self.episodes = episodes

    def draft(self, data: Mapping[str, Any], step: int) -> None:
        """Keep what is known of a step before verl saves it, see `gem_adapters.run_log.log_step`.

        Raises:
            GemError: a loss or the gradient is not finite; no checkpoint has what came of it.
        """
        log_step(self.run, step, self.episodes, {**SUMMARY, **self.common(data)}, draft=True)

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Write a training step; verl calls this at the end of each.

        Args:
            data: verl's metrics.
            step: counts from 1.

        Raises:
            GemError: a loss or the gradient is not finite.
        """
        log_step(self.run, step, self.episodes, {**SUMMARY, **self.common(data)})
        self.after_step(step)

    @staticmethod
    def common(data: Mapping[str, Any]) -> dict[str, float]:
        """Return those of verl's metrics that have a common name, under that name."""
        metrics: dict[str, float] = {}
        for name, value in data.items():
            if name.startswith((PREFIX, "actor/" + PREFIX)):
                metrics[name.removeprefix("actor/").removeprefix(PREFIX)] = float(value)
            elif name in NAMES:
                metrics[NAMES[name]] = float(value)
        return metrics
