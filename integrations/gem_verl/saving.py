"""Checkpoints by time and on request, in verl's training loop.

verl saves after a step whose number ``trainer.save_freq`` divides, and ends after
``total_training_steps``; both are read after each step, and so can be set for it. It sends the
weights, validates and logs only then: what is known of a step that it saves is kept before.
"""

from __future__ import annotations

from typing import Any

from gem_core.training.stopping import SaveClock, mark_stopped
from gem_verl.metrics import RunLog


class SavingStep:
    """Takes the place of the method ``step`` of verl's trainer, which it calls.

    Args:
        trainer: verl's trainer.
        log: writes the run directory.
    """

    def __init__(self, trainer: Any, log: RunLog) -> None:
        self._trainer = trainer
        self._log = log
        self._native = trainer.step
        self._interval = trainer.config.trainer.save_freq
        self._clock = SaveClock(log.run)
        self._stopping = False

    def __call__(self, metrics: dict[str, Any], timing: dict[str, Any]) -> Any:
        """Make a step; decide whether verl saves after it, and whether it is the last one."""
        batch = self._native(metrics, timing)
        trainer = self._trainer
        decision = self._clock.after(trainer.global_steps)
        trainer.config.trainer.save_freq = 1 if decision.save else self._interval
        is_last = trainer.global_steps >= trainer.total_training_steps
        if decision.save or is_last:
            self._log.draft(metrics, trainer.global_steps)
        if decision.stop:
            trainer.total_training_steps = trainer.global_steps
            self._stopping = True
        return batch

    def after(self, step: int) -> None:
        """Record, once step ``step`` is saved and logged, that training was stopped there."""
        if self._stopping:
            mark_stopped(self._log.run, step)
