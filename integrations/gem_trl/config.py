"""Recipe -> keyword arguments of ``trl.GRPOConfig``."""

from __future__ import annotations

import os
from typing import Any

from gem_core.adapters.native_keys import core_keys, refuse_keys
from gem_core.errors import RecipeError
from gem_core.training.recipe import Recipe, merge, recipe_keys

APPLIED = frozenset({
    "algorithm.estimator", "algorithm.options", "algorithm.gamma", "algorithm.lam",
    "algorithm.critic_lr", "eval.every",
    "eval.inside_episodes", "train.log_episodes",
})  # fmt: skip
"""Keys that the adapter itself carries out."""
REFUSED = {
    "context.history": "TRL trains one token sequence per episode; use history = 'append'.",
    "algorithm.kl_in": "TRL adds the KL term to the loss; use kl_in = 'loss'.",
}
"""Keys that cannot be honoured, and what to do instead."""
TRANSLATED = frozenset(recipe_keys()) - core_keys() - APPLIED - REFUSED.keys()
"""Keys that `translate` turns into native ones."""
_OWN = {"scale_rewards", "reward_weights", "multi_objective_aggregation", "generation_batch_size"}
_LOSSES = {"token": "dapo", "sequence": "grpo", "constant": "dr_grpo"}


def processes(recipe: Recipe) -> int:
    """Training processes of the run: one per GPU; on a CPU as many as were started."""
    gpus = recipe.hardware.nodes * recipe.hardware.gpus_per_node
    return gpus if recipe.hardware.device == "gpu" else int(os.environ.get("WORLD_SIZE", "1"))


def updates_per_step(recipe: Recipe) -> int:
    """Optimizer steps (TRL's ``global_step``) per training step (one batch of episodes)."""
    return recipe.algorithm.epochs * recipe.algorithm.minibatches


def generations(recipe: Recipe) -> int:
    """How often TRL repeats a data row: the group, or without groups a divisor of the batch.

    TRL wants at least two. Advantages do not depend on it, the recipe's estimator makes them.
    """
    size = recipe.batch.episodes
    if size < 2:
        raise RecipeError("batch.episodes: TRL needs at least 2 episodes per step.")
    smallest = max(2, recipe.batch.group_size)
    return next(n for n in range(smallest, size + 1) if size % n == 0)


def translate(recipe: Recipe) -> dict[str, Any]:
    """Return the ``GRPOConfig`` arguments of ``recipe``; ``[trainer.trl]`` is laid on top.

    Raises:
        RecipeError: a key that TRL cannot honour, or a native key that the recipe decides.
    """
    refuse_keys(recipe, "TRL", REFUSED)
    decided = {**_batching(recipe), **_bookkeeping(recipe)}
    native = recipe.trainer.get("trl", {})
    for key in native.keys() & (decided.keys() | _OWN):
        raise RecipeError(f"trainer.trl.{key}: decided by the recipe's own keys; use those.")
    return merge({**decided, **_algorithm(recipe), **_sampling(recipe), **_device(recipe)}, native)


def _batching(recipe: Recipe) -> dict[str, Any]:
    batch, algorithm, world = recipe.batch, recipe.algorithm, processes(recipe)
    rows, left = divmod(batch.episodes, world * algorithm.minibatches)
    micro = min(batch.micro_batch or rows, rows)
    if left or not rows or rows % micro:
        raise RecipeError(
            f"batch.episodes = {batch.episodes} must be a multiple of {world} process(es) x "
            f"algorithm.minibatches = {algorithm.minibatches} x batch.micro_batch = {micro}."
        )
    return {
        "per_device_train_batch_size": micro, "gradient_accumulation_steps": rows // micro,
        "steps_per_generation": rows // micro * algorithm.minibatches,
        "num_iterations": algorithm.epochs, "num_generations": generations(recipe),
        "shuffle_dataset": False,
    }  # fmt: skip


def _bookkeeping(recipe: Recipe) -> dict[str, Any]:
    train, updates = recipe.train, updates_per_step(recipe)
    return {
        "max_steps": train.steps * updates, "logging_steps": updates,
        "logging_nan_inf_filter": False,  # it would log the last finite loss instead
        "save_strategy": "steps", "save_total_limit": train.keep_checkpoints,
        "save_steps": (train.save_every or max(train.steps, 1)) * updates,
    }  # fmt: skip


def _algorithm(recipe: Recipe) -> dict[str, Any]:
    algorithm, limits = recipe.algorithm, recipe.limits
    return {
        "loss_type": _LOSSES[algorithm.loss_aggregation],
        # dr_grpo's divisor, nothing else: generation_kwargs say what a turn may sample.
        "max_completion_length": algorithm.loss_constant or limits.max_tokens_per_turn,
        "epsilon": algorithm.clip_low, "epsilon_high": algorithm.clip_high,
        "beta": algorithm.kl_coef, "entropy_coef": algorithm.entropy_coef,
        "learning_rate": algorithm.lr, "lr_scheduler_type": algorithm.schedule_name,
        "warmup_steps": algorithm.warmup_steps * updates_per_step(recipe),
        "adam_beta1": algorithm.betas[0], "adam_beta2": algorithm.betas[1],
        "weight_decay": algorithm.weight_decay, "max_grad_norm": algorithm.max_grad_norm,
        "seed": recipe.seed,
    }  # fmt: skip


def _sampling(recipe: Recipe) -> dict[str, Any]:
    sampling, limits, hardware = recipe.sampling, recipe.limits, recipe.hardware
    cap = limits.max_tokens_per_turn
    config: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    config["top_k"] = max(sampling.top_k, 0)
    on_cpu = hardware.device == "cpu"
    if hardware.engine == "sglang" or (on_cpu and hardware.engine == "vllm"):
        engine = f"hardware.engine = {hardware.engine!r} on the {hardware.device}"
        raise RecipeError(f"TRL cannot honour {engine}: use 'hf', or 'vllm' on a GPU.")
    if hardware.engine == "hf" or on_cpu:
        return {**config, "generation_kwargs": {"max_new_tokens": cap}}
    if limits.max_context_tokens is not None:
        config["vllm_max_model_length"] = limits.max_context_tokens + cap
    return {
        **config, "use_vllm": True, "vllm_mode": "colocate",
        # A ratio over all turns of an episode leaves any clip range: whole episodes would go.
        "vllm_importance_sampling_mode": "token_truncate",
        "generation_kwargs": {"max_tokens": cap},
    }  # fmt: skip


def _device(recipe: Recipe) -> dict[str, Any]:
    on_cpu = recipe.hardware.device == "cpu"
    return {
        "use_cpu": on_cpu, "dataloader_pin_memory": not on_cpu,
        # Weights stay float32 under autocast: at lr 1e-6 bfloat16 weights would not move.
        "model_init_kwargs": {"dtype": "float32", "revision": recipe.model.revision},
        "bf16": recipe.model.dtype == "bfloat16",
        "gradient_checkpointing": recipe.model.gradient_checkpointing,
        "report_to": [], "disable_tqdm": True,
    }  # fmt: skip
