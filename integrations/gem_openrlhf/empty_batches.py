"""Forward passes and minibatches that hold only failed episodes: nothing in them is trained.

OpenRLHF divides by their number of trained tokens. Where an optimizer step has none, its loss is
0 / 0 and the weights become NaN; where only one forward pass has none, its reported means are.
Here a mean over no tokens is 0: such an optimizer step has the gradient 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from openrlhf.utils.loss_utils import get_loss_batch_info

from gem_openrlhf.dynamic import mark_last_pass

NO_TOKENS = 1e-9
"""Weight of a forward pass without trained tokens in the means over tokens; it must not be 0."""
DIVISORS = ("batch_num_tokens", "global_batch_size")
"""What OpenRLHF divides the loss by: tokens and sequences of an optimizer step, over all ranks."""
Step = Callable[..., dict[str, Any]]


def policy_step(trainer: Any) -> Step:
    """Return the ``training_step`` of OpenRLHF's policy trainer, safe for passes without tokens."""
    training_step = trainer.training_step

    def step(
        experience: Any, kl_ctl: float, number: int, info: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        mark_last_pass(trainer, trainer.actor.model, number)
        status: dict[str, Any] = training_step(
            experience, kl_ctl, number, _divisors(trainer, experience, number, info)
        )
        if status["num_action_tokens"] == 0:
            status["num_action_tokens"] = NO_TOKENS
            for name, weight in status["weights"].items():
                if weight == "token":
                    status["metrics"][name] = torch.zeros(())
        return status

    return step


def critic_step(trainer: Any) -> Step:
    """Return the ``training_step`` of OpenRLHF's critic trainer, safe for passes without tokens."""
    training_step = trainer.training_step

    def step(experience: Any, number: int, info: dict[str, Any] | None = None) -> dict[str, Any]:
        mark_last_pass(trainer, trainer.critic, number)
        status: dict[str, Any] = training_step(
            experience, number, _divisors(trainer, experience, number, info)
        )
        if not experience.action_mask.any():
            status["values"] = 0.0
        return status

    return step


def _divisors(
    trainer: Any, experience: Any, number: int, info: dict[str, Any] | None
) -> dict[str, Any]:
    """Return what OpenRLHF divides the loss of a forward pass by, with 1 in place of 0.

    ``info`` is None with dynamic batches, where OpenRLHF looks it up in its buffer.
    """
    if info is None:
        info = get_loss_batch_info(
            trainer.strategy,
            experience.action_mask,
            replay_buffer=trainer.replay_buffer,
            step=number,
            dynamic_batch=trainer.args.train.dynamic_batch_enable,
        )
    safe = {name: torch.where(info[name] == 0, 1.0, info[name]) for name in DIVISORS}
    return {**info, **safe}
