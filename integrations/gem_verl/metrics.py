"""verl's metrics under the common names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_core.training.runs import RunDir
from gem_verl.advantages import SUMMARY

NAMES = {
    "timing_s/step": "time/step", "timing_s/gen": "time/rollout",
    "timing_s/update_actor": "time/update", "timing_s/update_weights": "time/sync",
    "timing_s/old_log_prob": "time/logprobs", "timing_s/save_checkpoint": "time/checkpoint",
    "actor/pg_loss": "loss/policy", "actor/kl_loss": "loss/kl", "critic/vf_loss": "loss/value",
    "actor/grad_norm": "grad_norm", "critic/grad_norm": "grad_norm/critic", "actor/lr": "lr",
    "actor/entropy": "entropy", "actor/pg_clipfrac": "clip_ratio",
    "training/rollout_probs_diff_max": "logprobs/rollout_diff_max",
}  # fmt: skip
"""Name in verl -> common name; what is not listed stays in verl's own logs."""


def common(data: Mapping[str, Any]) -> dict[str, float]:
    """Translate one step's metrics of verl; ``gem/<name>`` is already a common name."""
    ours = {name[4:]: float(value) for name, value in data.items() if name.startswith("gem/")}
    return ours | {NAMES[name]: float(data[name]) for name in NAMES if name in data}


class RunLog:
    """A backend of verl's ``Tracking`` that writes ``metrics.jsonl`` of the run directory."""

    def __init__(self, run: RunDir) -> None:
        self.run = run

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Called by verl at the end of each step."""
        self.run.log(step, SUMMARY | common(data))
