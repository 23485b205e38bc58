"""OpenRLHF's actors that update a model, reporting gradients that are not finite.

DeepSpeed skips an update whose gradient is not finite (bfloat16, ZeRO-2) or makes it (float32,
ZeRO-3), and reports a finite norm for both: it replaces a group's norm by -1 and then adds squares.
`gem_openrlhf.metrics.RunLog` stops the run on what is reported here instead.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from openrlhf.trainer.ray.ppo_actor import PolicyModelActor
from openrlhf.trainer.ray.ppo_critic import CriticModelActor


class GemPolicyModelActor(PolicyModelActor.__ray_metadata__.modified_class):
    """The policy; ``actor_grad_norm`` is NaN after a gradient that is not finite."""

    def fit(self, kl_ctl: float = 0) -> dict[str, float]:
        """Update the model; return OpenRLHF's status."""
        engine = self.actor.model
        skipped = engine.skipped_steps
        status: dict[str, float] = super().fit(kl_ctl)
        if not updates_were_finite(engine, skipped):
            status["actor_grad_norm"] = math.nan
        return status


class GemCriticModelActor(CriticModelActor.__ray_metadata__.modified_class):
    """The critic; ``critic_grad_norm`` is NaN after a gradient that is not finite."""

    def fit(self) -> dict[str, float]:
        """Update the model; return OpenRLHF's status."""
        skipped = self.critic.skipped_steps
        status: dict[str, float] = super().fit()
        if not updates_were_finite(self.critic, skipped):
            status["critic_grad_norm"] = math.nan
        return status


def updates_were_finite(engine: Any, skipped: int) -> bool:
    """Return whether DeepSpeed skipped no further update, and left all weights finite.

    Args:
        engine: DeepSpeed's engine; of weights that it spreads over ranks (ZeRO-3), the part of this
            rank is checked.
        skipped: its count of skipped updates before.
    """
    if engine.skipped_steps > skipped:
        return False
    weights = (getattr(weight, "ds_tensor", weight) for weight in engine.module.parameters())
    return all(bool(torch.isfinite(weight.data).all()) for weight in weights)
