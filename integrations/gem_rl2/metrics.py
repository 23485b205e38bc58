"""What RL2 logs -> the common metrics of the run directory."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import wandb

from gem_core.episodes.data import Episode
from gem_core.episodes.metrics import episode_metrics
from gem_core.errors import GemError
from gem_core.training.runs import RunDir
from gem_rl2._compat import prune_checkpoints

NAMES = {
    "actor/loss": "loss/policy", "actor/entropy": "entropy", "actor/grad_norm": "grad_norm",
    "actor/clip_ratio": "clip_ratio", "actor/kl": "kl", "actor/old_ref_approx_kl": "kl",
    "critic/loss": "loss/value", "critic/grad_norm": "grad_norm/value",
    "timing/rollout": "time/rollout", "timing/update_rollout": "time/sync",
}  # fmt: skip
"""RL2's name -> ours. Other ``timing/*`` are parts of ``time/update``."""


class RunLog:
    """Takes the place of ``wandb.log`` on rank 0 and writes one line per training step of ``run``.

    Where RL2 was told to use wandb, everything is passed on to it.
    """

    def __init__(self, run: RunDir) -> None:
        self.run, self.train = run, run.recipe.train
        self.seen: dict[str, list[float]] = defaultdict(list)
        self.forward = wandb.log if wandb.run is not None else None
        wandb.log = self
        self.begin()

    def begin(self) -> None:
        """A training step begins."""
        self.began = time.perf_counter()

    def __call__(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Collect; several epochs of one step are averaged, times are summed."""
        for name, value in metrics.items():
            self.seen[name].append(float(value))
        if self.forward is not None:
            self.forward(metrics, step=step)

    def finish(self, step: int, episodes: Sequence[Episode], extra: Mapping[str, float]) -> None:
        """Write the line of training step ``step``, and drop checkpoints that are too many.

        Raises:
            GemError: loss or gradient is not finite, so further training would be noise.
        """
        seen, self.seen = self.seen, defaultdict(list)
        found = {ours: sum(seen[n]) / len(seen[n]) for n, ours in NAMES.items() if n in seen}
        for name in ("loss/policy", "grad_norm"):
            if not math.isfinite(found.get(name, 0.0)):
                raise GemError(f"{name} is {found[name]} at step {step}: lower algorithm.lr.")
        parts = [sum(v) for k, v in seen.items() if k.startswith("timing/") and k not in NAMES]
        times = {"time/update": sum(parts), "time/step": time.perf_counter() - self.began}
        untrained = sum(not any(any(s.loss_mask) for s in e.segments) for e in episodes)
        own = {**episode_metrics(episodes), "episodes/untrained": float(untrained)}
        self.run.log(step, {**own, **extra, **found, **times})
        self.run.log_episodes(step, episodes[: self.train.log_episodes])
        prune_checkpoints(self.run.checkpoints, self.train.keep_checkpoints)
        self.begin()
