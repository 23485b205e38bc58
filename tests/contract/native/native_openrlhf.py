"""Where OpenRLHF's parsed arguments have the values of a recipe, without the adapter's tables."""

from __future__ import annotations

import math

from gem_adapters.estimate import needs_critic
from gem_openrlhf.command_line import parser
from gem_openrlhf.config import translate

LOSSES = {"token": "token-mean", "sequence": "seq-mean-token-mean"}
SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}
DEFAULT_TOKENS = 16192
"""OpenRLHF's own number of tokens, where nothing counts them."""
ROLES = ("actor", "ref", "critic", "reward")


def configuration(recipe):
    """The arguments as OpenRLHF's own parser reads them."""
    return parser().parse_args(translate(recipe))


def value(config, path):
    """The value of a dotted flag."""
    return getattr(config, path)


def updates(r):
    """Optimizer steps per training step."""
    return r.algorithm.epochs * r.algorithm.minibatches


def both(name, expected):
    """The same value for the policy and the critic."""
    return {f"actor.{name}": expected, f"critic.{name}": expected}


def warm_up(r):
    """OpenRLHF warms up for the ceiling of the ratio times the optimizer steps of the run."""
    total = r.train.steps * updates(r)
    wanted = r.algorithm.warmup_steps * updates(r)
    return lambda ratio: math.isclose(math.ceil(ratio * total), wanted, rel_tol=1e-9)


def micro(r):
    """Sequences per forward pass of one process."""
    processes = r.hardware.nodes * r.hardware.gpus_per_node
    rows = r.batch.episodes // (r.algorithm.minibatches * processes)
    if r.batch.max_tokens_per_device:
        return 1
    return min(r.batch.micro_batch or rows, rows)


STAGES = {"default": 2, "none": 0, "optimizer": 2, "full": 3}
"""ZeRO's stages; OpenRLHF's own is 2."""


EXPECTED = {
    "seed": lambda r: {"train.seed": r.seed},
    "model.path": lambda r: {"actor.model_name_or_path": r.model.path},
    "model.gradient_checkpointing": lambda r: {
        "actor.gradient_checkpointing_enable": r.model.gradient_checkpointing
    },
    "model.lora.rank": lambda r: {"ds.lora.rank": r.model.lora.rank},
    "model.lora.alpha": lambda r: {"ds.lora.alpha": int(r.model.lora.alpha)},
    "model.lora.targets": lambda r: {
        "ds.lora.target_modules": r.model.lora.targets or "all-linear"
    },
    "algorithm.betas": lambda r: both("adam.betas", r.algorithm.betas),
    "algorithm.clip_low": lambda r: {
        "actor.eps_clip_low_high": lambda pair: pair[0] == r.algorithm.clip_low
    },
    "algorithm.rollout_correction": lambda r: {
        "algo.advantage.is_correction_level": (
            "token" if r.algorithm.rollout_correction == "tis" else "off"
        ),
        "algo.advantage.is_correction_mode": "clip",
        "algo.advantage.is_correction_gating": "ratio",
    },
    "algorithm.rollout_cap": lambda r: {
        "algo.advantage.is_correction_threshold": [0.0, r.algorithm.rollout_cap]
    },
    "algorithm.clip_high": lambda r: {
        "actor.eps_clip_low_high": lambda pair: pair[1] == r.algorithm.clip_high
    },
    "algorithm.kl_coef": lambda r: {"algo.kl.init_coef": r.algorithm.kl_coef},
    "algorithm.kl_in": lambda r: {"algo.kl.use_loss": r.algorithm.kl_in == "loss"},
    "algorithm.entropy_coef": lambda r: {"actor.entropy_coef": r.algorithm.entropy_coef},
    "algorithm.estimator": lambda r: {
        "algo.advantage.estimator": lambda name: (name == "gae") == needs_critic(r)
    },
    "algorithm.epochs": lambda r: {"train.max_epochs": r.algorithm.epochs},
    "algorithm.minibatches": lambda r: {
        "train.batch_size": r.batch.episodes // r.algorithm.minibatches
    },
    "algorithm.loss_aggregation": lambda r: {
        "actor.loss_agg_mode": LOSSES[r.algorithm.loss_aggregation]
    },
    "algorithm.lr": lambda r: {"actor.adam.lr": r.algorithm.lr},
    "algorithm.critic_lr": lambda r: {
        "critic.adam.lr": r.algorithm.lr if r.algorithm.critic_lr is None else r.algorithm.critic_lr
    },
    "algorithm.value_clip": lambda r: {"critic.value_clip": r.algorithm.value_clip},
    "algorithm.lr_schedule": lambda r: both("lr_scheduler", SCHEDULES[r.algorithm.lr_schedule]),
    "algorithm.warmup_steps": lambda r: both("lr_warmup_ratio", warm_up(r)),
    "algorithm.weight_decay": lambda r: both("adam.weight_decay", r.algorithm.weight_decay),
    "algorithm.max_grad_norm": lambda r: both("max_norm", r.algorithm.max_grad_norm),
    "batch.episodes": lambda r: {
        "rollout.batch_size": r.batch.episodes // r.batch.group_size,
    },
    "batch.group_size": lambda r: {"rollout.n_samples_per_prompt": r.batch.group_size},
    "batch.micro_batch": lambda r: {
        "train.micro_batch_size": micro(r),
        "rollout.micro_batch_size": micro(r),
    },
    "batch.max_tokens_per_device": lambda r: {
        "train.dynamic_batch_enable": r.batch.max_tokens_per_device is not None,
        "train.max_tokens_per_gpu": r.batch.max_tokens_per_device or DEFAULT_TOKENS,
        "rollout.max_tokens_per_gpu": r.batch.max_tokens_per_device,
    },
    "sampling.temperature": lambda r: {"rollout.temperature": r.sampling.temperature},
    "sampling.top_p": lambda r: {"rollout.top_p": r.sampling.top_p},
    "eval.every": lambda r: {"eval.steps": r.eval.every or -1},
    "eval.temperature": lambda r: {"eval.temperature": r.eval.temperature},
    "train.save_every": lambda r: {"ckpt.save_steps": r.train.save_every or r.train.steps},
    "train.keep_checkpoints": lambda r: {"ckpt.max_num": r.train.keep_checkpoints},
    "hardware.device": lambda r: {
        "vllm.sync_backend": "gloo" if r.hardware.device == "cpu" else "nccl"
    },
    "hardware.engine_tensor_parallel": lambda r: {
        "vllm.tensor_parallel_size": r.hardware.engine_tensor_parallel,
        "vllm.num_engines": lambda engines: (
            r.hardware.device == "cpu"
            or engines * r.hardware.engine_tensor_parallel == r.hardware.gpus
        ),
    },
    "hardware.sharding": lambda r: {"ds.zero_stage": STAGES[r.hardware.sharding]},
    "hardware.offload": lambda r: {"ds.adam_offload": r.hardware.offload == "optimizer"},
    "hardware.nodes": lambda r: {f"{role}.num_nodes": r.hardware.nodes for role in ROLES},
    "hardware.gpus_per_node": lambda r: {
        f"{role}.num_gpus_per_node": r.hardware.gpus_per_node for role in ROLES
    },
}
"""Recipe key -> flag -> its value, or a function that says whether a value is right."""
FREE = {"actor.adam.eps": 0.25, "actor.dual_clip": 3.5, "ckpt.max_mem": 77}
"""Flags that no recipe key decides, with a value that is not their default."""
