"""A recipe as Oat's command line, and the command line as ``PPOArgs``."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gem_core.errors import RecipeError, unknown
from gem_core.recipe import Recipe, get_key, refuse
from gem_oat import TRAINER

TRANSLATED = frozenset(
    f"algorithm.{key}"
    for key in (
        "clip_low", "clip_high", "kl_coef", "kl_in", "epochs", "minibatches", "lr", "warmup_steps",
        "betas", "weight_decay", "max_grad_norm", "critic_lr",
    )
) | {
    "seed", "model.dtype", "model.gradient_checkpointing", "batch.micro_batch",
    "sampling.temperature", "sampling.top_p", "sampling.top_k", "train.keep_checkpoints",
    "hardware.device", "hardware.nodes", "hardware.gpus_per_node",
}  # fmt: skip

APPLIED = frozenset(
    f"algorithm.{key}"
    for key in (
        "estimator", "options", "gamma", "lam", "loss_aggregation", "loss_constant", "lr_schedule",
    )
) | {
    "batch.episodes", "batch.group_size", "eval.every", "eval.inside_episodes", "train.steps",
    "train.save_every", "train.log_episodes", "hardware.engine",
}  # fmt: skip
"""Keys that the adapter's actor, learner and launcher carry out; Oat's command line has none."""

REFUSED = {"algorithm.entropy_coef": "Oat computes the entropy without a gradient; set it to 0."}

SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}
"""Names of transformers; Oat hands them through, only its command line offers fewer."""

OWNED = frozenset(
    {
        "algo", "asynchronous", "beta", "buffer_clear_every", "critic_type", "debug", "eval_steps",
        "gpus", "kl_penalty_coef", "lora_sync_only", "max_epochs", "max_queries", "max_train",
        "num_groups", "num_prompt_epoch", "num_samples", "oracle", "pi_buffer_maxlen_per_device",
        "pretrain", "prompt_data", "resume_dir", "rollout_batch_size",
        "rollout_batch_size_per_device", "save_steps", "sync_params_every", "train_batch_size",
        "train_batch_size_per_device",
    }
)  # fmt: skip
"""Oat's arguments that the adapter depends on; `[trainer.oat]` must leave them alone."""


def learners(recipe: Recipe) -> int:
    """Number of learners, which equals the number of GPUs of the actors."""
    return recipe.hardware.nodes * recipe.hardware.gpus_per_node


def has_critic(recipe: Recipe) -> bool:
    """Whether the estimator reads values."""
    return recipe.algorithm.estimator == "gae"


def translate(recipe: Recipe) -> list[str]:
    """Oat's command line for ``recipe``; needs neither Oat nor a GPU.

    Raises:
        RecipeError: a key that Oat cannot honour, by name.
    """
    refuse(recipe, "Oat", REFUSED)
    _check(recipe)
    algorithm, gpu = recipe.algorithm, recipe.hardware.device == "gpu"
    ranks, micro = learners(recipe), recipe.batch.micro_batch or 1
    updates = algorithm.epochs * algorithm.minibatches
    total = recipe.train.steps * updates
    in_reward = algorithm.kl_in == "reward"
    half = recipe.model.dtype == "bfloat16"
    native: dict[str, Any] = {
        "algo": "PPO", "oracle": "", "prompt_data": "",
        "critic_type": "ppo" if has_critic(recipe) else "drgrpo",
        "seed": recipe.seed,
        "gpus": recipe.hardware.gpus_per_node, "num_groups": recipe.hardware.nodes,
        "collocate": True, "vllm_sleep": gpu, "shm_size_mb": 5000 if gpu else 200,
        "bf16": half, "flash_attn": half and gpu,
        "gradient_checkpointing": recipe.model.gradient_checkpointing,
        "num_ppo_epochs": algorithm.epochs, "cliprange": algorithm.clip_high,
        "beta": 0.0 if in_reward else algorithm.kl_coef,
        "kl_penalty_coef": algorithm.kl_coef if in_reward else 0.0,
        "learning_rate": algorithm.lr, "critic_learning_rate": algorithm.critic_lr or algorithm.lr,
        # Oat takes the ceiling of ratio * updates.
        "lr_warmup_ratio": max(0.0, algorithm.warmup_steps - 0.5) / max(1, total),
        "adam_beta_1": algorithm.betas[0], "adam_beta_2": algorithm.betas[1],
        "l2": algorithm.weight_decay, "max_norm": algorithm.max_grad_norm,
        "temperature": recipe.sampling.temperature, "top_p": recipe.sampling.top_p,
        "top_k": recipe.sampling.top_k, "num_samples": 1,
        # Off: truncated importance sampling, which no other trainer here does by default.
        "tis_c": None,
        "generate_max_length": recipe.limits.max_tokens_per_turn,
        "max_model_len": recipe.limits.max_context_tokens,
        # One item of the data set is one learner's part of a step; the learner sets the number of
        # rows. Oat plans its schedule for items * max_epochs / train_batch_size updates.
        "rollout_batch_size": ranks, "rollout_batch_size_per_device": 1,
        "pi_buffer_maxlen_per_device": 1,
        "train_batch_size": ranks * micro, "train_batch_size_per_device": micro,
        "max_epochs": updates * micro,
        "use_fused_lm_head": micro == 1 and recipe.batch.micro_batch == 1,
        # Oat's own evaluation, logging, saving and stopping are off: the adapter does them.
        "debug": True, "eval_steps": -1, "save_steps": -1, "logging_steps": 10**9,
        "max_train": 10**15, "max_save_num": max(2, recipe.train.keep_checkpoints),
    }  # fmt: skip
    if recipe.hardware.nodes == 1:
        native["master_addr"] = "127.0.0.1"
    native |= recipe.trainer.get("oat", {})
    return [word for key, value in native.items() for word in _flag(key, value)]


def arguments(recipe: Recipe) -> Any:
    """``PPOArgs`` by Oat's own parser and validation; imports Oat.

    Raises:
        RecipeError: as `translate`, or ``[trainer.oat]`` has a value that Oat does not take.
        UnknownNameError: ``[trainer.oat]`` has a key that is no argument of Oat.
    """
    import tyro
    from oat.algorithms.ppo import PPOArgs
    from oat.args import default_args_validation

    known = [field.name for field in fields(PPOArgs)]
    for key in recipe.trainer.get("oat", {}):
        if key not in known:
            raise unknown("argument of Oat in [trainer.oat]", key, known)
    try:
        args = tyro.cli(PPOArgs, args=translate(recipe))
    except SystemExit:
        raise RecipeError("trainer.oat: Oat's parser refuses a value; see above.") from None
    args.lr_scheduler = SCHEDULES[recipe.algorithm.lr_schedule]
    return default_args_validation(args)


def _flag(key: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}" if value else f"--no-{key}"]
    values = value if isinstance(value, (list, tuple)) else [value]
    return [f"--{key}", *map(str, values)]


def _check(recipe: Recipe) -> None:
    """Values, or pairs of them, that Oat cannot honour."""
    algorithm, hardware, native = recipe.algorithm, recipe.hardware, recipe.trainer.get("oat", {})
    gpu, ranks = hardware.device == "gpu", learners(recipe)
    for holds, keys, why in (
        (algorithm.clip_low == algorithm.clip_high, "algorithm.clip_low algorithm.clip_high",
         "Oat has one clip range; make them equal"),
        (recipe.model.revision is None, "model.revision",
         "Oat loads the newest one; download yours and name its directory"),
        (recipe.train.steps > 0, "train.steps", "there is nothing to train"),
        (hardware.engine in (("default", "vllm") if gpu else ("default", "hf")),
         "hardware.engine hardware.device", "Oat samples with vllm on a GPU, on a CPU with hf"),
        (gpu or ranks == 1, "hardware.nodes hardware.gpus_per_node", "on a CPU there is one"),
        (hardware.nodes == 1 or {"master_addr", "master_port", "group_rank"} <= native.keys(),
         "hardware.nodes", "start it once per node, with [trainer.oat] master_addr, master_port "
         "and group_rank"),
        (recipe.groups_per_step % ranks == 0, "batch.episodes batch.group_size",
         f"groups stay whole: episodes / group_size must be a multiple of {ranks} GPUs"),
        (not OWNED & native.keys(), "trainer",
         f"{TRAINER.name}.{'/'.join(sorted(OWNED & native.keys()))} belongs to the adapter; use "
         "the recipe's own keys"),
        (not native.get("use_fused_lm_head") or recipe.batch.micro_batch == 1, "batch.micro_batch",
         "Oat's fused LM head gives the transformer body no gradient with 2 or more rows; set it "
         "to 1 or leave use_fused_lm_head off"),
    ):  # fmt: skip
        if not holds:
            values = " and ".join(f"{key} = {get_key(recipe, key)!r}" for key in keys.split())
            raise RecipeError(f"Oat cannot honour {values}: {why}.")
