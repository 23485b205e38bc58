"""Values of Oat's arguments that are computed from several keys of a recipe."""

from __future__ import annotations

import os

from gem_adapters.estimate import needs_critic
from gem_core.errors import unknown
from gem_core.runs.recipe.recipe import Recipe

REAL_VARIABLE = "GEM_OAT_TEST_REAL"
"""Environment variable, for tests: which of `PARTS` are the released ones on a CPU, separated by
commas. With any, a CPU run has Oat's own program of processes, as a GPU run has."""
PARTS = ("vllm", "launchpad")
"""What the CPU backend stands in for otherwise."""


def real_parts() -> frozenset[str]:
    """Return the parts that `REAL_VARIABLE` names.

    Raises:
        UnknownNameError: it names another.
    """
    chosen = frozenset(filter(None, os.environ.get(REAL_VARIABLE, "").split(",")))
    for name in sorted(chosen - set(PARTS)):
        raise unknown(f"part of Oat in {REAL_VARIABLE}", name, PARTS)
    return chosen


def on_gpu(recipe: Recipe) -> bool:
    """Return whether Oat's own engine and processes run: on GPUs."""
    return recipe.hardware.device == "gpu"


def is_bfloat16(recipe: Recipe) -> bool:
    """Return whether weights are bfloat16; else they are float32."""
    return recipe.model.dtype == "bfloat16"


def takes_flash_attention(recipe: Recipe) -> bool:
    """Return whether weights are bfloat16 and on a GPU."""
    return is_bfloat16(recipe) and on_gpu(recipe)


def takes_fused_head(recipe: Recipe) -> bool:
    """Return whether a pass has one row, over all tokens: else the fused head cannot be taken.

    With several rows it has no gradient, and it makes no logits that could be restricted.
    """
    return recipe.batch.micro_batch == 1 and recipe.sampling.support == "all"


def lora_alpha(recipe: Recipe) -> int:
    """Return LoRA's alpha as a whole number."""
    return int(recipe.model.lora.alpha)


def clip_range(recipe: Recipe) -> float:
    """Return the one clip range: both of the recipe's, which must be equal."""
    return recipe.algorithm.clip_high


def critic_type(recipe: Recipe) -> str:
    """Return ``ppo``, which trains a critic, where the estimator needs one; else ``drgrpo``."""
    return "ppo" if needs_critic(recipe) else "drgrpo"


def kl_in_loss(recipe: Recipe) -> float:
    """Return the weight of the KL term in the loss: 0 where it is in the reward."""
    return recipe.algorithm.kl_coef if recipe.algorithm.kl_in == "loss" else 0.0


def kl_in_reward(recipe: Recipe) -> float:
    """Return the weight of the KL penalty in the reward: 0 where it is in the loss."""
    return recipe.algorithm.kl_coef if recipe.algorithm.kl_in == "reward" else 0.0


def checkpoints_kept(recipe: Recipe) -> int:
    """Return at least two: Oat deletes the oldest before the new one is whole."""
    return max(2, recipe.train.keep_checkpoints)


# Oat plans its schedule for items * max_epochs / train_batch_size updates, and takes the ceiling of
# ratio * updates for the warm-up. An item of the adapter's data set is one learner's part of a
# step; how many rows it has is known only in the step, and the learner sets these sizes then.


def updates_per_step(recipe: Recipe) -> int:
    """Return the optimizer steps per training step."""
    return recipe.algorithm.epochs * recipe.algorithm.minibatches


def micro_batch(recipe: Recipe) -> int:
    """Return the rows per forward pass of one learner, 1 before the number of rows is known."""
    return recipe.batch.micro_batch or 1


def train_rows(recipe: Recipe) -> int:
    """Return the rows per forward pass of all learners."""
    return recipe.hardware.gpus * micro_batch(recipe)


def passes_per_item(recipe: Recipe) -> int:
    """Return the epochs with which Oat's schedule comes to the updates of the run."""
    return updates_per_step(recipe) * micro_batch(recipe)


def warmup_ratio(recipe: Recipe) -> float:
    """Return the share of the updates in the warm-up; Oat takes the ceiling of their number."""
    half_below = max(0.0, recipe.algorithm.warmup_steps * updates_per_step(recipe) - 0.5)
    return half_below / max(1, recipe.train.steps * updates_per_step(recipe))


def correction_cap(recipe: Recipe) -> float | None:
    """Return the largest weight of a token; None without a correction."""
    algorithm = recipe.algorithm
    return algorithm.rollout_cap if algorithm.rollout_correction == "tis" else None
