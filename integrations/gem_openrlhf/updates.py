"""OpenRLHF's actors that update a model, and what they report of it.

OpenRLHF reports the last norm and the rate after the last step, and weights a loss that is already
divided by the minibatch's tokens by those of a forward pass; here the tensors of its loss are read
instead (`PolicyRecorder`).

DeepSpeed reports a finite norm for gradients that are not finite, see `gem_adapters.updates`;
`gem_openrlhf.metrics.RunLog` stops the run on what is reported here instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from openrlhf.trainer.ray.ppo_actor import PolicyModelActor
from openrlhf.trainer.ray.ppo_critic import CriticModelActor

from gem_adapters.update_means import UpdateMeans
from gem_adapters.updates import updates_were_finite
from gem_openrlhf import _compat
from gem_openrlhf.advantages import only_where_read
from gem_openrlhf.dynamic import keep_within_limit
from gem_openrlhf.empty_batches import critic_step, policy_step
from gem_openrlhf.lora import merged, save_merged
from gem_openrlhf.metrics import PREFIX
from gem_openrlhf.rows import counts_rows, divide_by_rows, row_metrics
from gem_openrlhf.support import is_restricted, restrict_updates, scoring


class GemPolicyModelActor(PolicyModelActor.__ray_metadata__.modified_class):
    """The policy; its ``grad_norm`` is NaN after a gradient that is not finite."""

    def init_model_from_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Load the model and make OpenRLHF's trainer."""
        keep_within_limit()
        super().init_model_from_pretrained(*args, **kwargs)
        if self.strategy.args.ds.lora.rank:
            self.strategy.save_model = partial(save_merged, self.strategy)
        if counts_rows(self.strategy.args):
            divide_by_rows(self.trainer)
        if is_restricted(self.strategy.args):
            restrict_updates(self.trainer)
        clip = self.strategy.args.actor.eps_clip_low_high
        self.recorder = PolicyRecorder(self.trainer, clip)
        self.trainer.training_step = policy_step(self.trainer)

    def forward(self, *args: Any, supports: Any = None, **columns: Any) -> torch.Tensor:
        """Score rows; among the tokens that could be drawn, where ``supports`` has them."""
        with scoring(self.actor, supports, columns):
            logprobs: torch.Tensor = super().forward(*args, **columns)
        return logprobs

    def broadcast_to_vllm(self) -> None:
        """Send the engines whole weights, also where adapters are trained."""
        with merged(self.actor.model.module):
            super().broadcast_to_vllm()

    def fit(self, kl_ctl: float = 0) -> dict[str, float]:
        """Update the model; return OpenRLHF's status."""
        engine = self.actor.model
        skipped = engine.skipped_steps
        status: dict[str, float] = super().fit(kl_ctl)
        status |= self.recorder.metrics()
        if counts_rows(self.strategy.args):
            status |= row_metrics(self.trainer)
        if not updates_were_finite(engine, skipped):
            status[PREFIX + "grad_norm"] = math.nan
        return status


class GemCriticModelActor(CriticModelActor.__ray_metadata__.modified_class):
    """The critic; its ``grad_norm`` is NaN after a gradient that is not finite."""

    def init_model_from_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Load the model, whose values begin at 0, and make OpenRLHF's trainer."""
        keep_within_limit()
        _compat.start_critics_at_zero()
        super().init_model_from_pretrained(*args, **kwargs)
        if counts_rows(self.strategy.args):
            divide_by_rows(self.trainer)
        self.recorder = Recorder(self.trainer, self.critic, "critic_loss", "critic_grad_norm")
        self.trainer.training_step = critic_step(self.trainer)

    def append(self, experience: Any) -> None:
        """Keep an experience for the update: the critic is trained where it is read."""
        super().append(only_where_read(experience))

    def fit(self) -> dict[str, float]:
        """Update the model; return OpenRLHF's status."""
        skipped = self.critic.skipped_steps
        status: dict[str, float] = super().fit()
        loss, norm = self.recorder.finish()
        finite = updates_were_finite(self.critic, skipped)
        status[PREFIX + "loss/value"] = loss
        status[PREFIX + "grad_norm/critic"] = norm if finite else math.nan
        return status


class Recorder:
    """Keeps loss and norm of every optimizer step of one of OpenRLHF's trainers.

    Args:
        trainer: its ``training_step``, on one forward pass, is wrapped.
        engine: DeepSpeed's engine of the model.
        loss: OpenRLHF's name of the loss.
        norm: OpenRLHF's name of the norm.
    """

    def __init__(self, trainer: Any, engine: Any, loss: str, norm: str) -> None:
        self.trainer = trainer
        self.engine = engine
        self.names = (loss, norm)
        self.losses: list[float] = []
        self.norms: list[float] = []
        self._passes: list[float] = []
        self._step = trainer.training_step
        trainer.training_step = self.training_step

    def training_step(self, experience: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Make OpenRLHF's step on a forward pass, and note what it saw."""
        updates = self.engine.global_steps
        status: dict[str, Any] = self._step(experience, *args, **kwargs)
        loss, norm = self.names
        logged = status.get("metrics", status)  # the critic's are not in a table of their own
        self._passes.append(float(logged[loss]))
        if self.engine.global_steps != updates:
            # OpenRLHF scales the loss of a forward pass by their number, as DeepSpeed divides; not
            # where the number varies.
            passes = 1 if self.trainer.args.train.dynamic_batch_enable else len(self._passes)
            self.losses.append(sum(self._passes) / passes)
            self.norms.append(float(logged[norm]))
            self._passes = []
        return status

    def finish(self) -> tuple[float, float]:
        """Return the mean loss and norm of a training step; a collective call."""
        own = np.array([np.mean(self.losses or [0.0]), np.mean(self.norms or [0.0])])
        self.losses = []
        self.norms = []
        loss, norm = (_sum_over_ranks(own) / dist.get_world_size()).tolist()
        return loss, norm


class PolicyRecorder(Recorder):
    """Also reads the tensors of the policy's loss, and the learning rate.

    Args:
        trainer: OpenRLHF's trainer of the policy.
        clip: ``algorithm.clip_low`` and ``algorithm.clip_high``.
    """

    def __init__(self, trainer: Any, clip: Sequence[float]) -> None:
        super().__init__(trainer, trainer.actor.model, "policy_loss", "actor_grad_norm")
        self.means = UpdateMeans(clip)
        self.lr = 0.0
        self._scores: Any = None
        trainer.actor.register_forward_hook(self._keep_scores)

    def _keep_scores(self, module: Any, inputs: Any, outputs: Any) -> None:
        if torch.is_grad_enabled():
            logprobs, rest = outputs
            # Without their graphs: the entropy's holds all logits, until the next pass is through.
            self._scores = (logprobs.detach(), rest.entropy.detach())

    def training_step(self, experience: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Make OpenRLHF's step on a forward pass, and note what it saw."""
        self.lr = self.trainer.actor_scheduler.get_last_lr()[0]
        updates = len(self.losses)
        status = super().training_step(experience, *args, **kwargs)
        logprobs, entropy = self._scores
        mask = experience.action_mask
        self.means.add(
            mask=mask,
            logprobs=logprobs,
            old=experience.action_log_probs,
            advantages=experience.advantages,
            entropy=entropy[:, -mask.shape[1] :],
            initial=experience.base_action_log_probs,
            rollout=experience.rollout_log_probs,
        )
        if len(self.losses) > updates:
            self.means.end_update()
        return status

    def metrics(self) -> dict[str, float]:
        """Return the metrics of a training step, under `PREFIX`; a collective call."""
        loss, norm = self.finish()
        metrics = {"loss/policy": loss, "grad_norm": norm, "lr": self.lr}
        metrics |= self.means.finish(_sum_over_ranks)
        return {PREFIX + name: number for name, number in metrics.items()}


def _sum_over_ranks(array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, array)
    total: npt.NDArray[np.float64] = np.sum(parts, axis=0)
    return total
