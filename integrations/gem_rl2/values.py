"""Values of RL2's keys that follow from several keys of a recipe."""

from __future__ import annotations

from gem_adapters.estimate import needs_critic
from gem_core.runs.recipe.recipe import Recipe


def estimator(recipe: Recipe) -> str:
    """Return ``gae`` where there is a critic, else the recipe's name; gem-core estimates."""
    return "gae" if needs_critic(recipe) else recipe.algorithm.estimator


def warmup_ratio(recipe: Recipe) -> float:
    """Return the share of ``train.steps`` in the warm-up.

    RL2 takes ``int(ratio * updates)``; the addition keeps a quotient from falling below.
    """
    warmup = recipe.algorithm.warmup_steps
    if not warmup:
        return 0.0
    return (warmup + 1e-6) / max(recipe.train.steps, 1)


def tokens_per_pass(recipe: Recipe) -> int:
    """Return the most tokens of a forward pass: by default ``batch.micro_batch`` longest sequences.

    RL2 packs sequences of any length.
    """
    if recipe.batch.max_tokens_per_device is not None:
        return recipe.batch.max_tokens_per_device
    hardware = recipe.hardware
    shared = hardware.sequence_parallel * hardware.tensor_parallel
    updates = recipe.algorithm.minibatches * hardware.gpus_per_node // shared
    minibatch = -(-recipe.batch.episodes // updates)  # rounded up
    sequences = min(recipe.batch.micro_batch or minibatch, minibatch)
    return sequences * (recipe.limits.max_context_tokens or 0)


def save_freq(recipe: Recipe) -> int:
    """Return the training steps between checkpoints; without an interval, those of the run."""
    return recipe.train.save_every or recipe.train.steps
