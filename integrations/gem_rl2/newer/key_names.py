"""The newer API's names for what 0.0.2 calls otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RENAMED = {
    "rollout.server_args.dtype": "actor.dtype", "trainer.n_epochs": "trainer.total_steps",
    "train_data.": "rollout.train.", "test_data.": "rollout.test.",
    "_sampling_params.": ".sampling_params.", "actor.gradient": "actor.enable_gradient",
    ".lr": ".optimizer.lr", ".betas": ".optimizer.betas", ".weight": ".optimizer.weight",
    ".scheduler": ".scheduler.name", ".warmup": ".scheduler.warmup",
    "rollout.dynamic": "rollout.train.dynamic",
}  # fmt: skip
"""Parts of 0.0.2's names -> what they are called."""
CRITIC = (
    "model_name", "dtype", "enable_gradient_checkpointing", "max_length_per_device",
    "max_grad_norm", "scheduler.name", "scheduler.warmup_ratio", "optimizer.weight_decay",
    "optimizer.betas",
)  # fmt: skip
"""What the critic has of the actor, but not by itself."""


def to_newer(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides for 0.0.2 as overrides for the newer API, which has no ``epochs``."""
    kept = {name: value for name, value in keys.items() if not name.startswith("++critic.")}
    found = {_renamed(name): value for name, value in kept.items() if name != "+actor.epochs"}
    # Only its default schedule has a minimum; the others do not take one.
    found |= {"~actor.scheduler.min_lr": None, "~critic.scheduler.min_lr": None}
    return found | {f"++critic.{name}": f"${{actor.{name}}}" for name in CRITIC}


def _renamed(name: str) -> str:
    for old, new in RENAMED.items():
        name = name.replace(old, new)
    return name
