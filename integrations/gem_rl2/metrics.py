"""What RL2 logs -> the common metrics of the run directory."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import wandb

from gem_adapters.loss_checks import require_finite
from gem_adapters.run_log import log_step
from gem_core.episodes.data import Episode
from gem_core.runs.directory.run_dir import RunDir
from gem_rl2._compat import prune_checkpoints

NAMES = {
    "actor/loss": "loss/policy",
    "actor/entropy": "entropy",
    "actor/grad_norm": "grad_norm",
    "actor/clip_ratio": "clip_ratio",
    "critic/loss": "loss/value",
    "critic/grad_norm": "grad_norm/critic",
    "timing/rollout": "time/rollout",
    "timing/update_rollout": "time/sync",
}
"""RL2's name -> the common one. Other ``timing/*`` are parts of ``time/update``."""


class RunLog:
    """Takes the place of ``wandb.log`` on rank 0 and writes one line per training step of ``run``.

    Where RL2 was told to use wandb, everything is passed on to it.
    """

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.keep_checkpoints = run.recipe.train.keep_checkpoints
        self.forward = wandb.log if wandb.run is not None else None
        wandb.log = self
        self.begin()

    def begin(self) -> None:
        """A training step begins; what was logged since the last one is of an evaluation."""
        self.began = time.perf_counter()
        self.logged: dict[str, list[float]] = defaultdict(list)

    def __call__(self, metrics: Mapping[str, Any], step: int) -> None:
        """Collect what RL2 logs; it may log a name several times in a step.

        Raises:
            GemError: a loss or the gradient is not finite. RL2 logs them before it saves a
                checkpoint, so that none has what came of them.
        """
        for name, value in metrics.items():
            self.logged[name].append(float(value))
        if self.forward is not None:
            self.forward(metrics, step=step)
        require_finite(step, _common(self.logged))

    def draft(self, step: int, episodes: Sequence[Episode], extra: Mapping[str, float]) -> None:
        """Keep what is known of a step before RL2 saves it, see `finish`."""
        log_step(self.run, step, episodes, self._metrics(extra), draft=True)

    def finish(self, step: int, episodes: Sequence[Episode], extra: Mapping[str, float]) -> None:
        """Write the line of training step ``step``, and delete checkpoints that are too many.

        Args:
            step: counts from 1.
            episodes: those of the step, in task order.
            extra: metrics under the common names that RL2 does not log, or in another meaning.
        """
        metrics = self._metrics(extra)
        metrics["time/step"] = time.perf_counter() - self.began
        log_step(self.run, step, episodes, metrics)
        prune_checkpoints(self.run.checkpoints, self.keep_checkpoints)
        self.begin()

    def _metrics(self, extra: Mapping[str, float]) -> dict[str, float]:
        metrics = {**_common(self.logged), **extra}
        metrics["loss/policy"] += self._terms(metrics)
        return metrics

    def _terms(self, metrics: Mapping[str, float]) -> float:
        """Return what takes the entropy bonus and the KL term out of RL2's loss."""
        algorithm = self.run.recipe.algorithm
        aggregated = self.logged.get("actor/entropy", [0.0])  # as the loss is
        bonus = algorithm.entropy_coef * sum(aggregated) / len(aggregated)
        if algorithm.kl_in == "reward":
            return bonus
        return bonus - algorithm.kl_coef * metrics.get("kl", 0.0)  # by the same estimator


def _common(logged: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """RL2's metrics of one step under the common names; several passes are averaged."""
    metrics = {
        common: sum(logged[native]) / len(logged[native])
        for native, common in NAMES.items()
        if native in logged
    }
    if "loss/value" in metrics:
        metrics["loss/value"] /= 2  # what `gem_rl2.worker.Critic` trains on: half RL2's error
    metrics["time/update"] = sum(
        sum(values)
        for native, values in logged.items()
        if native.startswith("timing/") and native not in NAMES
    )
    return metrics
