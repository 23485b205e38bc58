"""The update: TorchRL's GRPOTrainer with GRPOLoss and AdamW."""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
from tensordict import TensorDictBase
from torchrl.objectives.llm import GRPOLoss
from torchrl.trainers import MixedPrecisionOptimizationStepper
from torchrl.trainers.algorithms import GRPOTrainer

from gem_adapters.update_means import UpdateMeans
from torchrl_trainer.actor import Actor
from torchrl_trainer.rows import INITIAL, OLD, TOKENS, TRAINED


class Update:
    """TorchRL's objects for the arguments that `torchrl_trainer.config.translate` returned.

    Attributes:
        model: what is trained.
        trainer: TorchRL's; ``trainer.optim_steps(rows)`` makes the optimizer steps of a batch.
        minibatches: the rows of each optimizer step of the last batch, as positions in it.
    """

    def __init__(
        self, model: Any, tokenizer: Any, native: dict[str, Any], *, initial: Any, collector: Any
    ) -> None:
        self.model = model
        self.native = native
        self.actor = Actor(model, tokenizer, native["temperature"])
        self.initial = initial and Actor(initial, tokenizer, native["temperature"])
        self.minibatches: list[list[int]] = []
        self.loss = GRPOLoss(
            self.actor,
            clip_epsilon=native["clip_epsilon"],
            aggregation=native["aggregation"],
            entropy_bonus=native["entropy_bonus"],
            entropy_coeff=native["entropy_coeff"],
            kl_to_ref_coeff=native["kl_to_ref_coeff"],
            masking_strategy=native["masking_strategy"],
        )
        arguments = {key: native[key] for key in ("lr", "betas", "eps", "weight_decay")}
        optimizer = torch.optim.AdamW(model.parameters(), **arguments)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self.rate)
        self.stepper = Stepper(self, optimizer)
        self.trainer = GRPOTrainer(
            collector=collector,
            total_frames=sys.maxsize,  # the collector ends the training, after the last step
            optim_steps_per_batch=native["optim_steps_per_batch"],
            num_epochs=native["num_epochs"],
            loss_module=self.loss,
            optimization_stepper=self.stepper,
            progress_bar=False,
            auto_log_optim_steps=False,
            log_rewards=False,
            log_kl=False,
        )
        self.trainer.register_op("pre_epoch", self.prepare)
        self.trainer.register_op("process_optim_batch", self.minibatch)
        self.trainer.register_op("post_optim", self.schedule.step)

    def prepare(self, rows: TensorDictBase) -> TensorDictBase:
        """Add the log-probabilities before the batch's first update, in its first epoch."""
        if OLD not in rows.keys(include_nested=True):
            self.minibatches = []
            rows[OLD] = self.actor.logprobs(rows)
            if self.initial:
                rows[INITIAL] = self.initial.logprobs(rows)
        return rows

    def minibatch(self, rows: TensorDictBase) -> TensorDictBase:
        """Return the rows of the next optimizer step: equally many episodes, in their order.

        Rows without a trained token are left out, as `prompt_mean` would count them; where there
        are no others, the minibatch is one row of which no token is trained.
        """
        steps = self.native["optim_steps_per_batch"]
        size = int(rows["episodes"][0]) // steps
        first = len(self.minibatches) % steps * size
        owned = (rows["episode"] >= first) & (rows["episode"] < first + size)
        part = (owned & rows[TRAINED].any(1)).nonzero()[:, 0].tolist()
        self.minibatches.append(owned.nonzero()[:, 0].tolist())
        if part:
            return rows[part]
        idle = rows[:1].clone()
        idle[TRAINED] = torch.zeros_like(idle[TRAINED])
        return idle

    def rate(self, updates: int) -> float:
        """Return the factor of the learning rate after ``updates`` optimizer steps."""
        native = self.native
        per_step = native["num_epochs"] * native["optim_steps_per_batch"]
        warmup, total = native["warmup_steps"] * per_step, native["steps"] * per_step
        if updates < warmup:
            return updates / warmup
        left = (total - updates) / max(1, total - warmup)
        cosine = (1 - math.cos(math.pi * left)) / 2
        return {"constant": 1.0, "linear": left, "cosine": cosine}[native["lr_schedule"]]

    def state_dict(self) -> dict[str, Any]:
        """Return all that a checkpoint needs."""
        parts = {"model": self.model, "stepper": self.stepper, "schedule": self.schedule}
        return {name: part.state_dict() for name, part in parts.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.model.load_state_dict(state["model"])
        self.stepper.load_state_dict(state["stepper"])
        self.schedule.load_state_dict(state["schedule"])


class Stepper(MixedPrecisionOptimizationStepper):
    """TorchRL's optimizer step; it collects the metrics that all trainers have."""

    def __init__(self, update: Update, optimizer: torch.optim.Optimizer) -> None:
        self.update = update
        native = update.native
        self.means = UpdateMeans(native["clip_epsilon"])
        self.own: list[dict[str, float]] = []
        options = ("clip_norm", "mixed_precision", "gradient_accumulation_steps")
        super().__init__(optimizer, **{key: native[key] for key in options})

    def step(self, trainer: Any, sub_batch: TensorDictBase) -> TensorDictBase:
        """Make the step of a minibatch."""
        self.weigh_kl(sub_batch)
        rate = self.optimizer.param_groups[0]["lr"]
        losses = super().step(trainer, sub_batch)
        if self._skipped_nonfinite_steps:
            raise FloatingPointError("TorchRL skipped a step: loss or gradient is not finite.")
        self.own.append(
            {
                "loss/policy": losses["loss_objective"].item(),
                "grad_norm": losses["grad_norm"].item(),
                "lr": rate,
            }
        )
        policy = self.update.actor.last
        self.means.add(
            mask=sub_batch[TRAINED],
            logprobs=policy.log_prob(sub_batch[TOKENS]).detach(),
            old=sub_batch[OLD],
            advantages=sub_batch["advantage"][..., 0],
            entropy=policy.entropy().detach(),
            initial=sub_batch.get(INITIAL, None),
            rollout=sub_batch["rollout"],
        )
        self.means.end_update()
        return losses

    def weigh_kl(self, rows: TensorDictBase) -> None:
        """Make GRPOLoss's mean of the KL one over trained tokens: it divides by all positions."""
        trained = rows[TRAINED]
        share = trained.sum().clamp(min=1).item() / trained.numel()
        self.update.loss.kl_to_ref_coeff = self.update.native["kl_to_ref_coeff"] / share

    def finish(self) -> dict[str, float]:
        """Return the metrics of a training step, and begin the next one."""
        own, self.own = self.own, []
        metrics = {key: sum(step[key] for step in own) / len(own) for key in own[0]}
        return {**self.means.finish(), **metrics, "lr": own[-1]["lr"]}
