"""Where verl's configuration has the values of a recipe, written without the adapter's tables."""

from __future__ import annotations

from native_hydra import compose, value

from gem_adapters.estimate import needs_critic
from gem_verl.config import translate
from gem_verl.native import compose_native

__all__ = ["EXPECTED", "FREE", "configuration", "value"]

ACTOR = "actor_rollout_ref.actor"
REF = "actor_rollout_ref.ref"
ROLLOUT = "actor_rollout_ref.rollout"
LOSSES = {
    "token": "token-mean",
    "sequence": "seq-mean-token-mean",
    "constant": "seq-mean-token-sum-norm",
}
WEIGHTS = (f"{ACTOR}.fsdp_config", f"{REF}.fsdp_config", "critic.fsdp")


def configuration(recipe):
    """verl's configuration of a run with ``recipe``."""
    return compose(compose_native, translate(recipe))


def both(name, expected):
    """The same value for the policy and the critic."""
    return {f"{ACTOR}.{name}": expected, f"critic.{name}": expected}


def engine(r):
    """verl's name of the generation engine; on a CPU that of the adapter's stand-in."""
    if r.hardware.device == "cpu" and r.hardware.engine != "vllm":
        return "gem_hf"
    return "vllm" if r.hardware.engine == "default" else r.hardware.engine


def micro(r):
    """Sequences per forward pass, or packing by the number of tokens where none is set."""
    packed = r.batch.micro_batch is None
    paths = {f"{owner}.use_dynamic_bsz": packed for owner in (ACTOR, "critic")}
    paths |= {f"{owner}.log_prob_use_dynamic_bsz": packed for owner in (REF, ROLLOUT)}
    if not packed:
        paths |= both("ppo_micro_batch_size_per_gpu", r.batch.micro_batch)
        for owner in (REF, ROLLOUT):
            paths[f"{owner}.log_prob_micro_batch_size_per_gpu"] = r.batch.micro_batch
    return paths


def dtype(r):
    """float32 weights always; computation in the recipe's precision."""
    paths = {f"{ROLLOUT}.dtype": r.model.dtype}
    if r.model.dtype == "float32":
        paths |= {f"{owner}.dtype": "float32" for owner in WEIGHTS}
        paths |= {f"{owner}.mixed_precision.param_dtype": "fp32" for owner in WEIGHTS}
    else:
        paths |= {f"{owner}.dtype": "bfloat16" for owner in WEIGHTS}
    return paths


def most_tokens(r):
    """Most tokens of a forward pass of each of the models."""
    most = r.batch.max_tokens_per_device
    if most is None:
        on_gpu = max(16384, r.limits.max_context_tokens or 0)
        most = 10**7 if r.hardware.device == "cpu" else on_gpu
    names = {f"{owner}.log_prob_max_token_len_per_gpu": most for owner in (REF, ROLLOUT)}
    names["critic.ppo_infer_max_token_len_per_gpu"] = most
    return names | both("ppo_max_token_len_per_gpu", most)


def sharding(r):
    """Whether weights are freed between the forward and the backward pass."""
    freed = r.hardware.sharding != "optimizer"
    return {f"{owner}.reshard_after_forward": freed for owner in WEIGHTS}


def offload(r):
    """What waits in the host's memory."""
    away = r.hardware.offload
    names = {f"{owner}.param_offload": away == "all" for owner in WEIGHTS}
    for owner in (f"{ACTOR}.fsdp_config", "critic.fsdp"):
        names[f"{owner}.optimizer_offload"] = away != "none"
    return names


EXPECTED = {
    "name": lambda r: {"trainer.experiment_name": r.name},
    "seed": lambda r: {
        "data.seed": r.seed,
        f"{ROLLOUT}.seed": r.seed,
        f"{ACTOR}.fsdp_config.seed": r.seed,
        **both("data_loader_seed", r.seed),
    },
    "model.dtype": dtype,
    "model.gradient_checkpointing": lambda r: {
        "actor_rollout_ref.model.enable_gradient_checkpointing": r.model.gradient_checkpointing,
        "critic.model.enable_gradient_checkpointing": r.model.gradient_checkpointing,
    },
    "model.lora.rank": lambda r: {
        "actor_rollout_ref.model.lora_rank": r.model.lora.rank,
        "actor_rollout_ref.model.lora.merge": r.model.lora.rank > 0,
    },
    "model.lora.alpha": lambda r: {"actor_rollout_ref.model.lora_alpha": r.model.lora.alpha},
    "model.lora.targets": lambda r: {
        "actor_rollout_ref.model.target_modules": list(r.model.lora.targets) or "all-linear"
    },
    "algorithm.estimator": lambda r: {
        "algorithm.adv_estimator": f"gem_{r.algorithm.estimator}",
        "critic.enable": needs_critic(r),
    },
    "algorithm.options": lambda r: (
        {"algorithm.gem_options": r.algorithm.options} if r.algorithm.options else {}
    ),
    "algorithm.gamma": lambda r: {"algorithm.gamma": r.algorithm.gamma},
    "algorithm.lam": lambda r: {"algorithm.lam": r.algorithm.lam},
    "algorithm.betas": lambda r: both("optim.betas", list(r.algorithm.betas)),
    "algorithm.clip_low": lambda r: {f"{ACTOR}.clip_ratio_low": r.algorithm.clip_low},
    "algorithm.clip_high": lambda r: {f"{ACTOR}.clip_ratio_high": r.algorithm.clip_high},
    "algorithm.kl_coef": lambda r: {
        f"{ACTOR}.kl_loss_coef": r.algorithm.kl_coef,
        f"{ACTOR}.use_kl_loss": r.algorithm.kl_coef > 0,
        "algorithm.use_kl_in_reward": False,
    },
    "algorithm.entropy_coef": lambda r: {f"{ACTOR}.entropy_coeff": r.algorithm.entropy_coef},
    "algorithm.rollout_correction": lambda r: {
        "algorithm.rollout_correction.rollout_is": (
            "token" if r.algorithm.rollout_correction == "tis" else None
        ),
        "algorithm.rollout_correction.bypass_mode": False,
    },
    "algorithm.rollout_cap": lambda r: {
        "algorithm.rollout_correction.rollout_is_threshold": r.algorithm.rollout_cap
    },
    "algorithm.epochs": lambda r: both("ppo_epochs", r.algorithm.epochs),
    "algorithm.minibatches": lambda r: {
        **both("ppo_mini_batch_size", r.batch.episodes // r.algorithm.minibatches),
        **both("shuffle", r.algorithm.minibatches > 1),
    },
    "algorithm.loss_aggregation": lambda r: {
        f"{ACTOR}.loss_agg_mode": LOSSES[r.algorithm.loss_aggregation],
        "critic.loss_agg_mode": "token-mean",
    },
    "algorithm.loss_constant": lambda r: {f"{ACTOR}.loss_scale_factor": r.algorithm.loss_constant},
    "algorithm.lr": lambda r: {f"{ACTOR}.optim.lr": r.algorithm.lr},
    "algorithm.critic_lr": lambda r: {
        "critic.optim.lr": (
            r.algorithm.lr if r.algorithm.critic_lr is None else r.algorithm.critic_lr
        )
    },
    "algorithm.value_clip": lambda r: {"critic.cliprange_value": r.algorithm.value_clip},
    "algorithm.lr_schedule": lambda r: both("optim.lr_scheduler_type", r.algorithm.lr_schedule),
    "algorithm.warmup_steps": lambda r: both("optim.lr_warmup_steps", r.algorithm.warmup_steps),
    "algorithm.weight_decay": lambda r: both("optim.weight_decay", r.algorithm.weight_decay),
    "algorithm.max_grad_norm": lambda r: both("optim.clip_grad", r.algorithm.max_grad_norm),
    "batch.episodes": lambda r: {"data.train_batch_size": r.batch.episodes},
    "batch.micro_batch": micro,
    "batch.max_tokens_per_device": most_tokens,
    "sampling.temperature": lambda r: {f"{ROLLOUT}.temperature": r.sampling.temperature},
    "sampling.top_p": lambda r: {
        f"{ROLLOUT}.top_p": r.sampling.top_p,
        f"{ROLLOUT}.val_kwargs.top_p": r.eval.top_p or r.sampling.top_p,
    },
    "sampling.top_k": lambda r: {
        f"{ROLLOUT}.top_k": r.sampling.top_k,
        f"{ROLLOUT}.val_kwargs.top_k": r.sampling.top_k,
    },
    "sampling.support": lambda r: {
        "actor_rollout_ref.model.external_lib": (
            "gem_verl.drawn_plugin" if r.sampling.support == "drawn" else "gem_verl.worker_plugin"
        )
    },
    "eval.every": lambda r: {"trainer.test_freq": r.eval.every or -1},
    "eval.top_p": lambda r: {f"{ROLLOUT}.val_kwargs.top_p": r.eval.top_p or r.sampling.top_p},
    "eval.temperature": lambda r: {
        f"{ROLLOUT}.val_kwargs.temperature": r.eval.temperature,
        f"{ROLLOUT}.val_kwargs.do_sample": r.eval.temperature > 0,
    },
    "train.steps": lambda r: {"trainer.total_training_steps": r.train.steps},
    "train.save_every": lambda r: {"trainer.save_freq": r.train.save_every or r.train.steps},
    "train.keep_checkpoints": lambda r: {
        "trainer.max_actor_ckpt_to_keep": r.train.keep_checkpoints,
        "trainer.max_critic_ckpt_to_keep": r.train.keep_checkpoints,
    },
    "hardware.device": lambda r: {
        "trainer.device": "cpu" if r.hardware.device == "cpu" else "cuda"
    },
    "hardware.engine": lambda r: {f"{ROLLOUT}.name": engine(r)},
    "hardware.nodes": lambda r: {"trainer.nnodes": r.hardware.nodes},
    "hardware.gpus_per_node": lambda r: {"trainer.n_gpus_per_node": r.hardware.gpus_per_node},
    "hardware.engine_tensor_parallel": lambda r: {
        f"{ROLLOUT}.tensor_model_parallel_size": r.hardware.engine_tensor_parallel
    },
    "hardware.sequence_parallel": lambda r: {
        f"{owner}.ulysses_sequence_parallel_size": r.hardware.sequence_parallel
        for owner in (ACTOR, "critic", REF, *WEIGHTS)
    },
    "hardware.sharding": sharding,
    "hardware.offload": offload,
}
"""Recipe key -> native path -> its value, or a function that says whether a value is right."""
FREE = {"trainer.critic_warmup": 7, f"{ACTOR}.tau_neg": 3.5, f"{ACTOR}.tau_pos": 0.25}
"""Native keys that no recipe key decides, with a value that is not their default."""
