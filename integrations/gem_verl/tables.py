"""Which native key of verl comes from where: a recipe key, the adapter, the launcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gem_adapters.estimate import needs_critic
from gem_core.runs.recipe.recipe import Recipe
from gem_verl._compat import PREFIX

ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"
REF = "actor_rollout_ref.ref"
ROLLOUT = "actor_rollout_ref.rollout"
Value = Callable[[Recipe], Any]
"""A native key's value; None leaves verl's own in place."""
DIRECT: dict[str, tuple[str, ...]] = {
    "name": ("trainer.experiment_name",),
    "seed": (
        "data.seed",
        f"{ACTOR}.data_loader_seed",
        f"{ACTOR}.fsdp_config.seed",
        f"{ROLLOUT}.seed",
        "critic.data_loader_seed",
        "critic.fsdp.seed",
    ),
    "model.dtype": (f"{ROLLOUT}.dtype",),
    "model.lora.rank": (f"{MODEL}.lora_rank",),
    "model.gradient_checkpointing": (
        f"{MODEL}.enable_gradient_checkpointing",
        "critic.model.enable_gradient_checkpointing",
    ),
    "algorithm.gamma": ("algorithm.gamma",),
    "algorithm.lam": ("algorithm.lam",),
    "algorithm.clip_low": (f"{ACTOR}.clip_ratio_low",),
    "algorithm.clip_high": (f"{ACTOR}.clip_ratio_high",),
    "algorithm.kl_coef": (f"{ACTOR}.kl_loss_coef",),
    "algorithm.entropy_coef": (f"{ACTOR}.entropy_coeff",),
    "algorithm.rollout_cap": ("algorithm.rollout_correction.rollout_is_threshold",),
    "algorithm.epochs": (f"{ACTOR}.ppo_epochs", "critic.ppo_epochs"),
    "algorithm.loss_constant": (f"{ACTOR}.loss_scale_factor",),
    "algorithm.lr": (f"{ACTOR}.optim.lr",),
    "algorithm.lr_schedule": (
        f"{ACTOR}.optim.lr_scheduler_type",
        "critic.optim.lr_scheduler_type",
    ),
    "algorithm.warmup_steps": (
        f"{ACTOR}.optim.lr_warmup_steps",
        "critic.optim.lr_warmup_steps",
    ),
    "algorithm.betas": (f"{ACTOR}.optim.betas", "critic.optim.betas"),
    "algorithm.weight_decay": (f"{ACTOR}.optim.weight_decay", "critic.optim.weight_decay"),
    "algorithm.max_grad_norm": (f"{ACTOR}.optim.clip_grad", "critic.optim.clip_grad"),
    "algorithm.value_clip": ("critic.cliprange_value",),
    "batch.episodes": ("data.train_batch_size",),
    "batch.micro_batch": (
        f"{ACTOR}.ppo_micro_batch_size_per_gpu",
        "critic.ppo_micro_batch_size_per_gpu",
        f"{REF}.log_prob_micro_batch_size_per_gpu",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    ),
    "sampling.temperature": (f"{ROLLOUT}.temperature",),
    # Evaluations are cut in the same way: those before and after training are, too.
    "sampling.top_p": (f"{ROLLOUT}.top_p", f"{ROLLOUT}.val_kwargs.top_p"),
    "sampling.top_k": (f"{ROLLOUT}.top_k", f"{ROLLOUT}.val_kwargs.top_k"),
    "eval.temperature": (f"{ROLLOUT}.val_kwargs.temperature",),
    "train.steps": ("trainer.total_training_steps",),
    "train.keep_checkpoints": (
        "trainer.max_actor_ckpt_to_keep",
        "trainer.max_critic_ckpt_to_keep",
    ),
    "hardware.nodes": ("trainer.nnodes",),
    "hardware.gpus_per_node": ("trainer.n_gpus_per_node",),
    "hardware.engine_tensor_parallel": (f"{ROLLOUT}.tensor_model_parallel_size",),
    "hardware.sequence_parallel": tuple(
        f"{owner}.ulysses_sequence_parallel_size"
        for owner in (
            ACTOR,
            REF,
            "critic",
            f"{ACTOR}.fsdp_config",
            f"{REF}.fsdp_config",
            "critic.fsdp",
        )
    ),
}
"""Recipe key -> native keys that take the same value."""
LOSSES = {
    "token": "token-mean",
    "sequence": "seq-mean-token-mean",
    "constant": "seq-mean-token-sum-norm",
}
"""``algorithm.loss_aggregation`` -> verl's name of it."""


def _engine(recipe: Recipe) -> str:
    return "vllm" if recipe.hardware.engine == "default" else recipe.hardware.engine


def _max_model_len(recipe: Recipe) -> int | None:
    context = recipe.limits.max_context_tokens
    if context is not None and _engine(recipe) == "sglang":
        return context + 1  # verl keeps one token of SGLang's context free
    return context


def _if_float32(value: str) -> Value:
    """Return ``value`` for float32, else verl's own: float32 weights, bfloat16 computation."""
    return lambda recipe: value if recipe.model.dtype == "float32" else None


def _most_tokens(recipe: Recipe) -> int:
    """Return the most tokens of a forward pass; on a CPU, a whole minibatch's."""
    if recipe.batch.max_tokens_per_device is not None:
        return recipe.batch.max_tokens_per_device
    if recipe.hardware.device == "cpu":
        return 10**7
    return max(16384, recipe.limits.max_context_tokens or 0)


def _reshards(recipe: Recipe) -> bool | None:
    """Return whether FSDP2 frees gathered weights after the forward pass; None: as verl does."""
    return {"optimizer": False, "full": True}.get(recipe.hardware.sharding)


SHARDED = (f"{ACTOR}.fsdp_config", f"{REF}.fsdp_config", "critic.fsdp")
_MIXED = ("param_dtype", "reduce_dtype", "buffer_dtype")
COMPUTED: list[tuple[str, tuple[str, ...], Value]] = [
    (
        "model.dtype",
        tuple(f"{owner}.dtype" for owner in SHARDED),
        _if_float32("float32"),
    ),
    (
        "model.dtype",
        tuple(f"+{owner}.mixed_precision.{kind}" for owner in SHARDED for kind in _MIXED),
        _if_float32("fp32"),
    ),
    (
        "algorithm.estimator",
        ("algorithm.adv_estimator",),
        lambda recipe: PREFIX + recipe.algorithm.estimator,
    ),
    (
        "algorithm.estimator",
        ("critic.enable",),
        needs_critic,
    ),
    (
        "algorithm.critic_lr",
        ("critic.optim.lr",),
        lambda recipe: recipe.algorithm.critic_lr or recipe.algorithm.lr,
    ),
    (
        "algorithm.minibatches",
        (f"{ACTOR}.ppo_mini_batch_size", "critic.ppo_mini_batch_size"),
        lambda recipe: recipe.batch.episodes // recipe.algorithm.minibatches,
    ),
    (
        "algorithm.minibatches",
        (f"{ACTOR}.shuffle", "critic.shuffle"),
        lambda recipe: recipe.algorithm.minibatches > 1,
    ),
    (
        "algorithm.loss_aggregation",
        (f"{ACTOR}.loss_agg_mode",),
        lambda recipe: LOSSES[recipe.algorithm.loss_aggregation],
    ),
    (
        "algorithm.kl_coef",
        (f"{ACTOR}.use_kl_loss",),
        lambda recipe: bool(recipe.algorithm.kl_coef),
    ),
    (
        "algorithm.rollout_correction",
        ("algorithm.rollout_correction.rollout_is",),
        lambda recipe: "token" if recipe.algorithm.rollout_correction == "tis" else None,
    ),
    (
        "batch.micro_batch",
        (
            f"{ACTOR}.use_dynamic_bsz",
            "critic.use_dynamic_bsz",
            f"{REF}.log_prob_use_dynamic_bsz",
            f"{ROLLOUT}.log_prob_use_dynamic_bsz",
        ),
        lambda recipe: recipe.batch.micro_batch is None,
    ),
    (
        "batch.max_tokens_per_device",
        (
            f"{ACTOR}.ppo_max_token_len_per_gpu",
            "critic.ppo_max_token_len_per_gpu",
            "+critic.ppo_infer_max_token_len_per_gpu",  # the one that verl's trainer reads
            f"{REF}.log_prob_max_token_len_per_gpu",
            f"{ROLLOUT}.log_prob_max_token_len_per_gpu",
        ),
        _most_tokens,
    ),
    (
        "model.lora.alpha",
        (f"{MODEL}.lora_alpha",),
        lambda recipe: int(recipe.model.lora.alpha),
    ),
    (
        "model.lora.targets",
        (f"{MODEL}.target_modules",),
        lambda recipe: list(recipe.model.lora.targets) or "all-linear",
    ),
    (
        "model.lora.rank",
        (f"{MODEL}.lora.merge",),
        lambda recipe: recipe.model.lora.rank > 0,
    ),
    (
        "hardware.sharding",
        tuple(f"{owner}.reshard_after_forward" for owner in SHARDED),
        _reshards,
    ),
    (
        "hardware.offload",
        tuple(f"{owner}.param_offload" for owner in SHARDED),
        lambda recipe: True if recipe.hardware.offload == "all" else None,
    ),
    (
        "hardware.offload",
        (f"{ACTOR}.fsdp_config.optimizer_offload", "critic.fsdp.optimizer_offload"),
        lambda recipe: None if recipe.hardware.offload == "none" else True,
    ),
    (
        "limits.max_context_tokens",
        ("data.max_prompt_length", "data.max_response_length"),
        lambda recipe: recipe.limits.max_context_tokens,
    ),
    ("limits.max_context_tokens", (f"{ROLLOUT}.max_model_len",), _max_model_len),
    (
        "eval.temperature",
        (f"{ROLLOUT}.val_kwargs.do_sample",),
        lambda recipe: recipe.eval.temperature > 0,
    ),
    ("eval.every", ("trainer.test_freq",), lambda recipe: recipe.eval.every or -1),
    (
        "train.save_every",
        ("trainer.save_freq",),
        lambda recipe: recipe.train.save_every or recipe.train.steps,
    ),
    (
        "hardware.device",
        ("trainer.device",),
        lambda recipe: "cpu" if recipe.hardware.device == "cpu" else "cuda",
    ),
    (
        "hardware.engine",
        (f"{ROLLOUT}.name", "reward.reward_model.rollout.name"),
        _engine,
    ),
]
"""Recipe key, the native keys that it decides, and their value."""
WIRING: dict[str, Any] = {
    f"{MODEL}.external_lib": "gem_verl.worker_plugin",
    f"{ACTOR}.calculate_entropy": True,  # the update's entropy is a common metric
    f"{ROLLOUT}.calculate_log_probs": True,
    f"{ROLLOUT}.agent.default_agent_loop": "gem",
    "data.custom_cls.path": "pkg://gem_verl.rollout",
    "data.custom_cls.name": "TaskDataset",
    "data.train_files": "gem:train",
    "data.val_files": "gem:eval",
    "data.shuffle": False,
    "trainer.use_v1": True,
    "trainer.v1.trainer_mode": "sync",
    "trainer.v1.sampler.custom_sampler.path": "pkg://gem_verl.sampler",
    "trainer.v1.sampler.custom_sampler.name": "GemSampler",
    "trainer.total_epochs": 1,  # the tasks of all steps are one epoch
    f"{ROLLOUT}.n": 1,  # the members of a group are tasks of their own
    f"{ACTOR}.rollout_n": 1,
    f"{REF}.rollout_n": 1,
    "critic.rollout_n": 1,
    "critic.loss_agg_mode": "token-mean",  # the policy's loss_aggregation is not the critic's
    "algorithm.use_kl_in_reward": False,  # a KL per token would count as reward of turns
}
"""Where the adapter is plugged in; without one of these verl would train on something else."""
NATIVE_DEFAULTS: dict[str, Any] = {
    f"{ACTOR}.clip_ratio_c": 1e9,  # plain PPO: never verl's second clip of negative advantages
    f"{ACTOR}.strategy": "fsdp2",
    "critic.strategy": "fsdp2",
    f"{ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
    f"{ACTOR}.checkpoint.load_contents": ["model", "optimizer", "extra"],  # else those saved
    "data.dataloader_num_workers": 0,
    "reward.num_workers": 1,
    "trainer.project_name": "gem-core",
    "trainer.logger": ["console"],
    "trainer.val_before_train": False,
    "+ray_kwargs.ray_init.address": lambda r: "auto" if r.hardware.nodes > 1 else None,
}
"""Defaults of verl that do not fit, which ``[trainer.verl]`` may change.

A function gets the recipe and returns the value; None leaves verl's own in place.
"""
