"""What TRL's optimizer steps saw: the metrics of an update that TRL logs in another meaning.

TRL logs a loss with the KL term in it, means over forward passes, and the norm of the last gradient
only. The tensors of its own loss are read here instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from gem_adapters.update_means import Reduce, UpdateMeans
from gem_core.runs.recipe.tables import AlgorithmConfig

if TYPE_CHECKING:
    from gem_trl._compat import GRPOTrainer


class Updates:
    """Collects the forward passes of a training step's optimizer steps.

    Args:
        algorithm: that table of the recipe.
    """

    def __init__(self, algorithm: AlgorithmConfig) -> None:
        self.algorithm = algorithm
        self.means = UpdateMeans((algorithm.clip_low, algorithm.clip_high))
        self.policy_losses: list[float] = []
        self.norms: list[float] = []
        self.lr = 0.0
        self._loss = 0.0

    def add(
        self, trainer: GRPOTrainer, inputs: dict[str, Any], scores: Any, loss: torch.Tensor
    ) -> None:
        """Add a forward pass.

        Args:
            trainer: whose loss it is.
            inputs: what TRL's loss got.
            scores: log-probabilities and entropies that TRL's loss computed.
            loss: what it returned.
        """
        algorithm = self.algorithm
        share = trainer.share(inputs)
        logprobs, entropy = (tensor.detach() for tensor in scores)
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        initial = inputs.get("ref_per_token_logps")
        advantages = inputs["advantages"]
        if advantages.dim() == 1:  # TRL's own: the check before the first update refuses them
            advantages = advantages[:, None].expand_as(mask)
        self.means.add(
            mask=mask,
            logprobs=logprobs,
            old=inputs.get("old_per_token_logps", logprobs),
            advantages=advantages,
            entropy=entropy,
            initial=initial,
            rollout=inputs.get("sampling_per_token_logps"),
        )
        policy = float(loss.detach())
        if algorithm.entropy_coef:
            tokens = float(mask.sum().clamp(min=1))
            mean = float((entropy * mask).sum()) / tokens
            policy += algorithm.entropy_coef * mean * share.entropy
        if algorithm.kl_coef and initial is not None:
            difference = initial - logprobs
            penalty = difference.exp() - 1 - difference
            term = float(_aggregate(trainer, inputs, penalty, mask))
            policy -= trainer.beta * term * share.loss  # its coefficient, with the row scale
        self._loss += policy

    def end_update(self) -> None:
        """Close an optimizer step."""
        self.means.end_update()
        self.policy_losses.append(self._loss)
        self._loss = 0.0

    def finish(self, reduce: Reduce, world: int) -> dict[str, float]:
        """Return the metrics of the training step, and begin the next one; a collective call.

        Args:
            reduce: the sum of a float64 array over ranks.
            world: number of ranks.
        """
        count = max(1, len(self.policy_losses))
        loss = reduce(torch.tensor([sum(self.policy_losses) / count / world]).double().numpy())
        metrics = {
            **self.means.finish(reduce),
            "loss/policy": float(loss[0]),
            "grad_norm": sum(self.norms) / max(1, len(self.norms)),
            "lr": self.lr,
        }
        self.policy_losses = []
        self.norms = []
        return metrics


def _aggregate(
    trainer: GRPOTrainer, inputs: dict[str, Any], values: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Return the share of ``values`` [rows, tokens] in TRL's loss of this forward pass."""
    accumulation = trainer.current_gradient_accumulation_steps
    summed = values * mask
    if trainer.loss_type == "grpo":
        means = summed.sum(-1) / mask.sum(-1).clamp(min=1.0)
        return means.mean() / accumulation
    if trainer.loss_type == "dr_grpo":
        return summed.sum() / (len(values) * trainer.max_completion_length) / accumulation
    tokens = inputs["num_items_in_batch"].clamp(min=1.0) / trainer.accelerator.num_processes
    return summed.sum() / (tokens * accumulation / trainer.args.steps_per_generation)
