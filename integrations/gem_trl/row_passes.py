"""Forward passes over a number of rows that changes from step to step, with TRL's own loss.

TRL divides a batch into passes of equally many rows and gives each pass the same weight. Where an
episode may have several rows, `RowPasses` divides them itself, into minibatches that differ by one
row at most and passes of at most ``batch.micro_batch`` rows. Every pass then has the share in the
loss that its rows have in the recipe's mean.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from gem_core.errors import RecipeError
from gem_trl._compat import GRPOTrainer
from gem_trl.advantages import StepBatch, pool
from gem_trl.batching import batching
from gem_trl.rows import divide, rows_of, slots_of

if TYPE_CHECKING:
    from gem_core.runs.recipe.recipe import Recipe

TOKENS = "gem_minibatch_tokens"
"""Name of a minibatch's trained tokens, over all ranks, in what TRL's loss gets."""


class Share(NamedTuple):
    """What a forward pass is in an optimizer step.

    Attributes:
        loss: factor of TRL's loss of the pass.
        entropy: factor of the mean entropy of the pass.
    """

    loss: float
    entropy: float


class RowPasses(GRPOTrainer):
    """TRL's trainer, for episodes of one row and of several.

    Attributes:
        recipe: the experiment.
        several_rows: whether an episode may have several rows; without it all is as in TRL.
        step_batch: see `gem_trl.trainer.GemTrainer`.
        slots: rows of an epoch over all ranks, those included that only fill up a pass.
        world: number of processes.
    """

    recipe: Recipe
    several_rows: bool
    step_batch: StepBatch | None
    slots: int
    world: int
    entropy_coef: float
    _step: int
    _buffered_inputs: list[dict[str, Any]] | None
    _pass: dict[str, Any] | None = None

    def require_rows_can_differ(self) -> None:
        """Refuse models whose loss has a term that counts rows which only fill up a pass.

        Raises:
            RecipeError: the model's routers have a loss of their own.
        """
        if self.several_rows and self.aux_loss_enabled:
            raise RecipeError(
                "model.path: with several rows per episode the adapter cannot weight the loss of a "
                "model's routers (output_router_logits); use context.history = 'append' and a "
                "template that keeps earlier actions, or a model without that loss."
            )

    def filled(self, inputs: list[dict[str, Any]], rows: int) -> list[dict[str, Any]]:
        """Return as many data rows as TRL is to score, on every rank equally many.

        TRL divides them into groups for advantages of its own, which are replaced.

        Args:
            inputs: this rank's data rows.
            rows: the step's rows of this rank; at least one more is returned, for empty slots.
        """
        most = max(pool([rows], self.world))
        count = -(-(most + 1) // self.num_generations) * self.num_generations
        return [dict(inputs[place % len(inputs)]) for place in range(count)]

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        if not self.several_rows:
            prepared: dict[str, Any] = super()._prepare_inputs(generation_batch)
            return prepared
        if self._pass is not None:
            return self._pass
        passes = self.args.steps_per_generation
        if self._step % (passes * self.num_iterations) == 0 or self._buffered_inputs is None:
            output = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = self._divided(output)
        part: dict[str, Any] = self._buffered_inputs[self._step % passes]
        return part

    def _divided(self, output: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the parts that TRL's loop asks for, one by one, in an epoch."""
        assert self.step_batch is not None, "the batch was scored"
        minibatches = self.recipe.algorithm.minibatches
        passes = batching(self.recipe).accumulation
        count = len(self.step_batch.rows)
        slots = slots_of(max(pool([count], self.world)), minibatches, passes)
        self.slots = sum(slots) * self.world
        mask = output["completion_mask"] * output["tool_mask"]
        parts = divide(count, slots, passes)
        own = [[float(mask[rows].sum()) for rows in minibatch] for minibatch in parts]
        tokens = self.sum_over_ranks(np.array(own).sum(axis=1))
        return [
            rows_of(output, rows) | {TOKENS: float(number)}
            for minibatch, number in zip(parts, tokens, strict=True)
            for rows in minibatch
        ]

    def training_step(
        self, model: Any, inputs: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """TRL's step on a part of a minibatch, in passes of at most ``batch.micro_batch`` rows."""
        step: torch.Tensor
        if not self.several_rows:
            step = super().training_step(model, inputs, num_items_in_batch)
            return step
        model.train()
        part = self._prepare_inputs(inputs)
        places = torch.arange(len(part["advantages"])).split(batching(self.recipe).micro)
        number = self._step  # TRL counts every call; these are one
        losses = []
        for rows in places:
            self._step = number
            self._pass = rows_of(part, rows)
            last = rows is places[-1]
            with nullcontext() if last else self.accelerator.no_sync(model):
                losses.append(super().training_step(model, self._pass, num_items_in_batch))
        self._pass = None
        return torch.stack(losses).sum()

    def share(self, inputs: dict[str, Any]) -> Share:
        """Return the share of a forward pass in the loss of its optimizer step.

        TRL averages over the rows of a pass, over the passes of an optimizer step and over ranks,
        and gives the entropy the mean of the pass.

        Args:
            inputs: what TRL's loss gets.
        """
        passes = self.current_gradient_accumulation_steps
        if not self.several_rows:
            return Share(1.0, 1.0 / passes)
        assert self.step_batch is not None, "the batch was scored"
        loss = 1.0
        if self.loss_type != "dapo":  # that one divides by the batch's tokens already
            rows = self.step_batch.row_count / self.recipe.algorithm.minibatches
            loss = len(inputs["advantages"]) * passes * self.world / max(rows, 1e-9)
        tokens = float((inputs["completion_mask"] * inputs["tool_mask"]).sum())
        return Share(loss, tokens * self.world / max(inputs[TOKENS], 1.0))

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        share = self.share(inputs)
        coefficient = self.entropy_coef
        if self.several_rows:
            passes = self.current_gradient_accumulation_steps
            self.entropy_coef = coefficient * share.entropy * passes / share.loss
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        self.entropy_coef = coefficient
        return loss * share.loss if self.several_rows else loss
