"""Values that several trainers take in place of a recipe's own."""

from __future__ import annotations

from gem_core.runs.recipe.recipe import Recipe


def first_beta(recipe: Recipe) -> float:
    """Return the first of the two."""
    return recipe.algorithm.betas[0]


def second_beta(recipe: Recipe) -> float:
    """Return the second of the two."""
    return recipe.algorithm.betas[1]


def critic_lr(recipe: Recipe) -> float:
    """Return the critic's learning rate, by default ``algorithm.lr``."""
    return recipe.algorithm.critic_lr or recipe.algorithm.lr


def eval_top_p(recipe: Recipe) -> float:
    """Return the evaluations' ``top_p``, by default ``sampling.top_p``."""
    return recipe.eval_top_p


def schedule(recipe: Recipe) -> str:
    """Return the schedule's name in transformers."""
    return recipe.algorithm.schedule_name


def minibatch(recipe: Recipe) -> int:
    """Return the episodes per optimizer step: ``batch.episodes`` / minibatches."""
    return recipe.batch.episodes // recipe.algorithm.minibatches


def groups(recipe: Recipe) -> int:
    """Return the groups per training step: ``batch.episodes`` / ``batch.group_size``."""
    return recipe.groups_per_step
