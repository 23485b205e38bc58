"""Write what TRL logs to the run directory, under the common names."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from gem_adapters.loss_checks import require_finite
from gem_adapters.run_log import log_evaluation, log_step
from gem_core.runs.directory.run_dir import RunDir
from gem_core.training.stopping import SaveClock, mark_stopped
from gem_trl.advantages import StepBatch, pool

if TYPE_CHECKING:
    from gem_trl.trainer import GemTrainer


class RunLog(TrainerCallback):
    """Writes a line of metrics per training step, sampled episodes, and evaluations.

    It also has TRL save by time, and save and end when the run is asked to stop.

    Args:
        run: the run directory; only the first rank writes there.

    Attributes:
        trainer: set by `GemTrainer`.
    """

    trainer: GemTrainer
    save_clock: SaveClock

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.began = 0.0
        self.seconds = 0.0
        self.stopped_at: int | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock of the checkpoints."""
        self.save_clock = SaveClock(self.run)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock at the first update of a training step."""
        if state.global_step % self.trainer.step_updates == 0:
            self.began = time.perf_counter()

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Keep the learning rate that the coming optimizer step uses."""
        self.trainer.updates.lr = float(optimizer.param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the clock at the last update; evaluate and save where it is due."""
        self.trainer.updates.end_update()
        config = self.trainer.recipe.eval
        step, remainder = divmod(state.global_step, self.trainer.step_updates)
        self.seconds = time.perf_counter() - self.began
        if remainder == 0 and config.every and step % config.every == 0:
            episodes = self.trainer.play_evaluation(config.inside_episodes)
            if state.is_world_process_zero:
                log_evaluation(self.run, step, episodes)
        if remainder == 0:
            # The first rank decides for all: saving is a collective call.
            decision = pool([self.save_clock.after(step)], self.trainer.world)[0]
            control.should_save |= decision.save
            control.should_training_stop |= decision.stop
            self.stopped_at = step if decision.stop else None

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End here, before a model is saved, where training was stopped.

        Raises:
            RunStopped: it was.
        """
        if self.stopped_at is not None:
            raise mark_stopped(self.run, self.stopped_at)

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write the line of a training step after its last optimizer step; TRL logs each.

        Raises:
            GemError: a loss or the gradient is not finite; on every rank.
        """
        if logs is None or "loss" not in logs:
            return  # the summary at the end of training
        batch = self.trainer.step_batch
        assert batch is not None, "TRL logs a training step after it"
        step, remainder = divmod(state.global_step - 1, self.trainer.step_updates)
        # What is differentiated has the entropy bonus in it, the policy's loss has not.
        require_finite(step + 1, {"grad_norm": logs["grad_norm"], "loss/policy": logs["loss"]})
        self.trainer.updates.norms.append(logs["grad_norm"])
        if remainder + 1 < self.trainer.step_updates:
            return
        metrics = self._metrics(batch)
        require_finite(step + 1, metrics)
        if state.is_world_process_zero:
            log_step(self.run, step + 1, batch.episodes, metrics)

    def _metrics(self, batch: StepBatch) -> dict[str, float]:
        trainer = self.trainer
        return {
            **batch.metrics,
            **self._rows(batch),
            **trainer.updates.finish(trainer.sum_over_ranks, trainer.world),
            "time/step": self.seconds,
            "time/rollout": trainer.rollout_seconds,
            "time/update": self.seconds - trainer.rollout_seconds,
        }

    def _rows(self, batch: StepBatch) -> dict[str, float]:
        """Return the number of rows, where an episode may have several."""
        if not self.trainer.several_rows:
            return {}
        slots = self.trainer.slots
        return {"rows/all": slots, "rows/masked": slots - batch.row_count}
