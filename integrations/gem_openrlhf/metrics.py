"""OpenRLHF's logs -> the common metric names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = {
    "policy_loss": "loss/policy",
    "critic_loss": "loss/value",
    "actor_grad_norm": "grad_norm",
    "actor_lr": "lr",
    "entropy_loss": "entropy",
    "kl": "kl",
    "vllm_kl": "sampling/logprob_difference",
    "is_filter_ratio": "sampling/filtered",
    "ppo_clip_ratio": "clip_ratio",
    "timing/step_total": "time/step",
    "timing/generation": "time/rollout",
    "timing/make_experience": "time/experience",
    "timing/ppo_train": "time/update",
    "timing/broadcast": "time/sync",
}


def common(status: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one training step that have a common name."""
    return {name: float(status[native]) for native, name in NAMES.items() if native in status}
