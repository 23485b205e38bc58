"""OpenRLHF's actors that update a model, with two repairs of what they report.

DeepSpeed reports a finite norm for gradients that are not finite, see `gem_core.adapters.updates`;
`gem_openrlhf.metrics.RunLog` stops the run on what is reported here instead. And OpenRLHF divides
by the number of trained tokens of a micro-batch, which is 0 where it holds failed episodes only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from openrlhf.trainer.ray.ppo_actor import PolicyModelActor
from openrlhf.trainer.ray.ppo_critic import CriticModelActor

from gem_core.adapters.updates import updates_were_finite

NO_TOKENS = 1e-9
"""Weight of a micro-batch without trained tokens in the means over tokens; it must not be 0."""


class GemPolicyModelActor(PolicyModelActor.__ray_metadata__.modified_class):
    """The policy; ``actor_grad_norm`` is NaN after a gradient that is not finite."""

    def init_model_from_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Load the model and make OpenRLHF's trainer."""
        super().init_model_from_pretrained(*args, **kwargs)
        self.trainer.training_step = _with_weight(self.trainer.training_step)

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


def _with_weight(training_step: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Wrap OpenRLHF's step over a micro-batch: one without trained tokens reports zeros.

    Its means over tokens are 0 / 0, and OpenRLHF divides by its number of tokens again.
    """

    def step(*args: Any, **kwargs: Any) -> dict[str, Any]:
        status = training_step(*args, **kwargs)
        if status["num_action_tokens"] == 0:
            status["num_action_tokens"] = NO_TOKENS
            for name, weight in status["weights"].items():
                if weight == "token":
                    status["metrics"][name] = torch.zeros(())
        return status

    return step
