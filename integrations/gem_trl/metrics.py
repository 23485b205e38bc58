"""TRL's log and callbacks -> the common metrics of the run directory."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from gem_core.episodes.metrics import episode_metrics
from gem_core.errors import GemError
from gem_core.training.runs import RunDir
from gem_trl.config import updates_per_step

NAMES = {
    "grad_norm": "grad_norm", "learning_rate": "lr", "entropy": "entropy", "kl": "kl",
    "clip_ratio/region_mean": "clip_ratio",
    "sampling/sampling_logp_difference/mean": "sampling/logprob_difference",
}  # fmt: skip
"""TRL's name -> ours."""


class RunLog(TrainerCallback):
    """Writes a line of metrics per training step, sampled episodes, and evaluations."""

    def __init__(self, run: RunDir) -> None:
        self.run, self.trainer = run, None
        self.began = self.seconds = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock at the first update of a training step."""
        if state.global_step % updates_per_step(self.trainer.recipe) == 0:
            self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the clock at the last update; evaluate where the recipe asks for it."""
        config = self.trainer.recipe.eval
        step, left = divmod(state.global_step, updates_per_step(self.trainer.recipe))
        self.seconds = time.perf_counter() - self.began
        if not left and config.every and step % config.every == 0:
            episodes = self.trainer.play_held_out(config.inside_episodes)
            if state.is_world_process_zero:
                self.run.log_eval(step, "during", episode_metrics(episodes))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Write the line; raises GemError when loss or gradient is not finite."""
        if "loss" not in logs:
            return  # the summary at the end of training
        step = state.global_step // updates_per_step(self.trainer.recipe)
        bad = [key for key in ("loss", "grad_norm") if not math.isfinite(logs.get(key, 0.0))]
        if bad:
            raise GemError(f"{bad[0]} is {logs[bad[0]]} in step {step}: lower algorithm.lr.")
        if not state.is_world_process_zero:
            return
        batch, rollout = self.trainer.step_batch, self.trainer.rollout_seconds
        metrics = {
            **episode_metrics(batch.episodes), **batch.metrics,
            **{name: logs[key] for key, name in NAMES.items() if logs.get(key) is not None},
            "loss/policy": logs.get("policy_loss", logs["loss"]),
            "time/step": self.seconds, "time/rollout": rollout,
            "time/update": self.seconds - rollout,
        }  # fmt: skip
        self.run.log(step, metrics)
        self.run.log_episodes(step, batch.episodes[: self.trainer.recipe.train.log_episodes])


class CriticKeeper(TrainerCallback):
    """Puts the critic into each checkpoint."""

    trainer: Any = None

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save the critic, where there is one, on the first rank."""
        if self.trainer.critic is not None and state.is_world_process_zero:
            self.trainer.critic.save(Path(args.output_dir) / f"checkpoint-{state.global_step}")
