"""The reference of a whole run in plain PyTorch: what every trainer's weights must be.

It takes only one thing from a trainer: which turns are in which minibatch, since trainers
shuffle in their own ways. Everything else is computed here, from the recipe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gem_core.policies.models.weights import load_model
from gem_core.runs.recipe.recipe import Recipe
from gem_parity import reference_advantages
from gem_parity.diagnosis import Update
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import StepTrace, TracedRow, Unit, Weights
from gem_parity.reference_batch import ReferenceBatch, cut_off
from gem_parity.reference_critic import ReferenceCritic
from gem_parity.reference_lora import add_adapters
from gem_parity.reference_loss import policy_loss
from gem_parity.reference_optimizer import ReferenceAdamW
from gem_parity.traits import Traits


class ReferenceTrainer:
    """Policy, critic and optimizers of one run.

    Args:
        recipe: the experiment.
        model_dir: the initial policy.
        traits: what the trainer that is compared does in its own way.
        critic: the trainer's initial critic, whose head is random; empty without a critic.
        dtype: precision of all numbers.
        trained: the trainer's initial policy, of which only the random part of adapters is read.

    Attributes:
        model: the policy.
        critic: None without a critic.
        clipped: tokens so far whose ratio was clipped below and above, counted where the clip
            takes the gradient away.
        steps: the policy's optimizer steps in the last training step.
        rows: the sequences of the last training step.
    """

    def __init__(
        self,
        recipe: Recipe,
        model_dir: str,
        traits: Traits,
        critic: Weights,
        dtype: torch.dtype = torch.float64,
        trained: Weights | None = None,
    ) -> None:
        self.recipe = recipe
        self.traits = traits
        self.dtype = dtype
        self.model: Any = load_model(model_dir).to(dtype).eval()
        self.initial: Any = load_model(model_dir).to(dtype).eval()
        self.adapters: dict[str, Tensor] = {}
        if recipe.model.lora.rank:
            self.adapters = add_adapters(recipe, self.model, trained or {}, dtype)
        weights = self.adapters or dict(self.model.named_parameters())
        lr = recipe.algorithm.lr
        self.optimizer = ReferenceAdamW(recipe, traits, weights, lr, traits.decayed)
        self.critic: ReferenceCritic | None = None
        if recipe.algorithm.estimator == "gae":
            body: Any = load_model(model_dir).base_model.to(dtype).eval()
            self.critic = ReferenceCritic(recipe, traits, body, critic)
        self.clipped = [0, 0]
        self.steps: list[Update] = []
        self.rows: list[TracedRow] = []

    def weights(self) -> Weights:
        """Return the policy's weights."""
        return _numpy(dict(self.model.named_parameters()) | self.adapters)

    def critic_weights(self) -> Weights:
        """Return the critic's weights; empty without a critic."""
        return {} if self.critic is None else _numpy(self.critic.weights())

    def step(self, recorded: FrozenBatch, trace: StepTrace) -> None:
        """Train one step on ``recorded``, in the minibatches of ``trace``."""
        batch = ReferenceBatch(recorded)
        with torch.no_grad():
            old, _ = self._logprobs(self.model, batch)
            initial = self._initial(batch)
        advantages = batch.spread(self._advantages(batch, old, initial)).to(self.dtype)
        self.rows = batch.rows(advantages, old)
        self.steps = []
        self.optimizer.batch_updates = len(trace.minibatches)
        for units in trace.minibatches:
            self._update(batch, units, old, initial, advantages)
        if self.critic is not None:
            self.critic.learn(batch, trace.critic_minibatches)

    def _initial(self, batch: ReferenceBatch) -> Tensor | None:
        """Return the initial model's log-probabilities where the recipe has a KL term."""
        if not self.recipe.algorithm.kl_coef:
            return None
        return self._logprobs(self.initial, batch)[0]

    def _logprobs(
        self, model: Any, batch: ReferenceBatch, rows: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of each token, [rows, tokens]; 0 for the first.

        ``rows`` are those of the batch; None is all.
        """
        rows = range(len(batch.token_ids)) if rows is None else rows
        ids = batch.token_ids[list(rows)]
        logits = model(input_ids=ids).logits[:, :-1] / self.recipe.sampling.temperature
        drawn = self.recipe.sampling.support == "drawn"
        cut = cut_off([batch.supports[row] if drawn else None for row in rows], logits.shape)
        logs = torch.log_softmax(logits.to(self.dtype) + cut.to(self.dtype), dim=-1)
        chosen = logs.gather(2, ids[:, 1:, None])[..., 0]
        entropy = -(logs.exp() * logs.masked_fill(cut < 0, 0.0)).sum(-1)
        pad = torch.nn.functional.pad
        return pad(chosen, (1, 0)), pad(entropy, (1, 0))

    def _advantages(
        self, batch: ReferenceBatch, old: Tensor, initial: Tensor | None
    ) -> list[list[float]]:
        """Return the advantage of each trained turn, per episode."""
        algorithm = self.recipe.algorithm
        played = batch.played()
        if initial is not None and algorithm.kl_in == "reward":
            penalties = algorithm.kl_coef * (old - initial).double()
            places = {(a.episode, a.turn): a for a in batch.actions}
            for number, episode in enumerate(played):
                for position, turn in enumerate(episode.turns):
                    action = places[number, turn]
                    span = penalties[action.row, action.start : action.end]
                    episode.rewards[position] -= float(span.sum())
        if self.critic is not None:
            self.critic.read(batch, played)
        return reference_advantages.advantages(algorithm, played)

    def _update(
        self,
        batch: ReferenceBatch,
        units: list[Unit],
        old: Tensor,
        initial: Tensor | None,
        advantages: Tensor,
    ) -> None:
        """Make one optimizer step of the policy."""
        algorithm = self.recipe.algorithm
        weights = self._weights(batch, units)
        # Rows without a trained token are left out, as they add nothing; all, if none has one.
        rows = (weights[1] > 0).any(1).nonzero()[:, 0].tolist() or list(range(len(weights[1])))
        weights = weights[0][rows], weights[1][rows]
        old, advantages = old[rows], advantages[rows]
        in_loss = initial[rows] if initial is not None and algorithm.kl_in == "loss" else None
        logprobs, entropy = self._logprobs(self.model, batch, rows)
        loss = policy_loss(
            algorithm, self.traits, logprobs, old, in_loss, entropy, advantages, weights
        )
        loss.backward()
        self._count_clipped(torch.exp(logprobs.detach() - old), advantages * (weights[0] > 0))
        rate = self.optimizer.rate()
        norm = min(self.optimizer.step(), algorithm.max_grad_norm)
        size = sum(weight.numel() for weight in self.optimizer.weights.values())
        self.steps.append(Update(rate, norm, size))

    def _weights(self, batch: ReferenceBatch, units: list[Unit]) -> tuple[Tensor, Tensor]:
        """Return the weight of each token by the recipe's aggregation, and in a mean of tokens.

        The second one is a mean over the minibatch's own tokens, whatever the trainer's divisor is.
        """
        algorithm = self.recipe.algorithm
        mask = batch.mask(batch.trained(units))
        everything = batch.mask(batch.actions)
        own_tokens = max(float(mask.sum()), 1.0)
        per_token = (mask / own_tokens).to(self.dtype)
        if algorithm.loss_aggregation == "token":
            tokens = own_tokens
            if self.traits.divisor == "batch share":
                tokens = float(everything.sum()) / algorithm.minibatches
            return (mask / tokens).to(self.dtype), per_token
        of_row = mask.sum(1, keepdim=True)
        sequences = float((of_row > 0).sum())
        in_batch = int((everything.sum(1) > 0).sum())
        if self.traits.divisor == "batch share":
            sequences = in_batch / algorithm.minibatches
        if self.traits.divisor == "padded minibatch":
            sequences = self.traits.minibatch_size(self.recipe, in_batch)
        inside = of_row.clamp(min=1.0)
        if algorithm.loss_aggregation == "constant":
            inside = torch.full_like(of_row, float(algorithm.loss_constant or 1))
        return (mask / inside / max(sequences, 1.0)).to(self.dtype), per_token

    def _count_clipped(self, ratio: Tensor, advantages: Tensor) -> None:
        algorithm = self.recipe.algorithm
        below = (ratio < 1 - algorithm.clip_low) & (advantages < 0)
        above = (ratio > 1 + algorithm.clip_high) & (advantages > 0)
        self.clipped[0] += int(below.sum())
        self.clipped[1] += int(above.sum())


def _numpy(weights: dict[str, Tensor]) -> Weights:
    return {name: weight.detach().double().numpy().copy() for name, weight in weights.items()}


def relative_difference(weights: Weights, expected: Weights) -> tuple[float, float, str]:
    """Return the relative L2 difference of all weights, the largest single one, and its name.

    Raises:
        ValueError: the names of the parameters differ.
    """
    if weights.keys() != expected.keys():
        raise ValueError(f"Different parameters: {sorted(weights.keys() ^ expected.keys())}.")
    differences = {name: weights[name].astype(np.float64) - expected[name] for name in expected}
    squares = sum(float((d**2).sum()) for d in differences.values())
    norm = sum(float((weight**2).sum()) for weight in expected.values())
    largest = {name: float(np.abs(d).max()) for name, d in differences.items()}
    name = max(largest, key=lambda key: largest[key])
    return (squares / norm) ** 0.5, largest[name], name
