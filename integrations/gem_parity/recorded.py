"""One recorded run that every trainer replays: the episodes of each training step.

The episodes do not depend on the weights (their tokens are random), so no trainer can drift away
from them, and two implementations stay comparable over any number of steps. Trainers compute the
log-probabilities of the old policy themselves; those in the episodes are random numbers, which a
trainer on a CPU must not use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import compact_of
from gem_parity.frozen import FrozenBatch, frozen_batch

Unit = tuple[int, int | None]
"""What is trained: an episode of the batch by its position, and one turn of it; None is all."""
Weights = dict[str, np.ndarray]
"""Parameter name -> value."""


@dataclass
class TracedRow:
    """One sequence as a trainer's loss has it; place p belongs to token p.

    Attributes:
        token_ids: length L, without padding.
        mask: length L, 1 on trained tokens.
        advantages: length L; read where the mask is 1.
        logprobs: of the policy at the beginning of the step, likewise; None where the trainer does
            not compute them.
    """

    token_ids: list[int]
    mask: list[int]
    advantages: np.ndarray
    logprobs: np.ndarray | None = None


@dataclass
class StepTrace:
    """What a trainer did in one training step.

    Attributes:
        weights: the policy's, by the names of the Hugging Face causal language model.
        critic: the critic's: ``body.<name>`` by the names of the Hugging Face base model,
            ``head.weight`` [1, hidden] and, where there is one, ``head.bias`` [1]; empty without a
            critic.
        minibatches: per optimizer step of the policy, what it was trained on.
        critic_minibatches: the same of the critic.
        rows: what the step trained on, for a diagnosis; empty where a trainer does not tell.
    """

    weights: Weights
    critic: Weights = field(default_factory=dict)
    minibatches: list[list[Unit]] = field(default_factory=list)
    critic_minibatches: list[list[Unit]] = field(default_factory=list)
    rows: list[TracedRow] = field(default_factory=list)


OnStep = Callable[[int, StepTrace], None]
"""Gets the number of training steps that are done, and what the last one did; 0 comes first."""


def without_tied(weights: Weights) -> Weights:
    """Leave out an output layer that is the input embedding again; some trainers export both."""
    output = weights.get("lm_head.weight")
    embedding = weights.get("model.embed_tokens.weight")
    if output is None or embedding is None or not np.array_equal(output, embedding):
        return weights
    return {name: weight for name, weight in weights.items() if name != "lm_head.weight"}


def recorded_run(recipe: Recipe) -> list[FrozenBatch]:
    """Return the batch of every training step of ``recipe``, the same on every machine."""
    return [
        frozen_batch(
            recipe.batch.episodes,
            group_size=recipe.batch.group_size,
            seed=step,
            first=step * recipe.batch.episodes,
            history=recipe.context.history,
            compact=compact_of(recipe),
            support=recipe.sampling.support == "drawn",
        )
        for step in range(recipe.train.steps)
    ]
