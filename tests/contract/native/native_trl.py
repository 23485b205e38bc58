"""Where TRL's ``GRPOConfig`` has the values of a recipe, written without the adapter's tables."""

from __future__ import annotations

import tempfile
from dataclasses import fields
from types import SimpleNamespace

from trl import GRPOConfig

from gem_trl.config import native_config, translate

LOSSES = {"token": "dapo", "sequence": "grpo", "constant": "dr_grpo"}
SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


def configuration(recipe):
    """The real configuration object of a run with ``recipe``.

    ``GRPOConfig`` cannot be made for a GPU or for ranks that are not here: for those it is its
    fields.
    """
    if recipe.hardware.device == "gpu" or recipe.hardware.gpus > 1:
        defaults = {field.name: field.default for field in fields(GRPOConfig)}
        return SimpleNamespace(**defaults | translate(recipe))
    return native_config(recipe, [1], tempfile.gettempdir())


def value(config, path):
    """The value at ``path``."""
    for part in path.split("."):
        config = config[part] if isinstance(config, dict) else getattr(config, part)
    return getattr(config, "value", config)  # of an enumeration


def updates(r):
    """Optimizer steps per training step."""
    return r.algorithm.epochs * r.algorithm.minibatches


def micro(r):
    """Sequences per forward pass of one process."""
    rows = r.batch.episodes // (r.algorithm.minibatches * r.hardware.gpus)
    return min(r.batch.micro_batch or rows, rows)


def accumulation(r):
    """Forward passes per optimizer step."""
    return r.batch.episodes // (r.algorithm.minibatches * r.hardware.gpus * micro(r))


def engine(r):
    """The generation engine."""
    default = "vllm" if r.hardware.device == "gpu" else "hf"
    return default if r.hardware.engine == "default" else r.hardware.engine


def divisor(r):
    """What a loss that is a sum is divided by."""
    return r.algorithm.loss_constant or r.limits.max_tokens_per_turn


EXPECTED = {
    "seed": lambda r: {"seed": r.seed},
    "model.dtype": lambda r: {"bf16": r.model.dtype == "bfloat16", "fp16": False},
    "model.gradient_checkpointing": lambda r: {
        "gradient_checkpointing": r.model.gradient_checkpointing
    },
    "algorithm.betas": lambda r: {
        "adam_beta1": r.algorithm.betas[0],
        "adam_beta2": r.algorithm.betas[1],
    },
    "algorithm.clip_low": lambda r: {"epsilon": r.algorithm.clip_low},
    "algorithm.clip_high": lambda r: {"epsilon_high": r.algorithm.clip_high},
    "algorithm.kl_coef": lambda r: {"beta": r.algorithm.kl_coef},
    "algorithm.entropy_coef": lambda r: {"entropy_coef": r.algorithm.entropy_coef},
    "algorithm.rollout_correction": lambda r: {
        "vllm_importance_sampling_correction": (
            engine(r) == "vllm" and r.algorithm.rollout_correction == "tis"
        ),
        "vllm_importance_sampling_mode": "token_truncate",
    },
    "algorithm.rollout_cap": lambda r: {
        "vllm_importance_sampling_clip_max": r.algorithm.rollout_cap,
        "vllm_importance_sampling_clip_min": None,
    },
    "algorithm.epochs": lambda r: {"num_iterations": r.algorithm.epochs},
    "algorithm.minibatches": lambda r: {
        "steps_per_generation": accumulation(r) * r.algorithm.minibatches,
        "gradient_accumulation_steps": accumulation(r),
    },
    "algorithm.loss_aggregation": lambda r: {"loss_type": LOSSES[r.algorithm.loss_aggregation]},
    "algorithm.loss_constant": lambda r: {"max_completion_length": divisor(r)},
    "algorithm.lr": lambda r: {"learning_rate": r.algorithm.lr},
    "algorithm.lr_schedule": lambda r: {"lr_scheduler_type": SCHEDULES[r.algorithm.lr_schedule]},
    "algorithm.warmup_steps": lambda r: {"warmup_steps": r.algorithm.warmup_steps * updates(r)},
    "algorithm.weight_decay": lambda r: {"weight_decay": r.algorithm.weight_decay},
    "algorithm.max_grad_norm": lambda r: {"max_grad_norm": r.algorithm.max_grad_norm},
    "batch.episodes": lambda r: {
        "per_device_train_batch_size": lambda n: (
            n * accumulation(r) * r.algorithm.minibatches * r.hardware.gpus == r.batch.episodes
        ),
    },
    "batch.group_size": lambda r: {
        "num_generations": lambda n: n >= r.batch.group_size and r.batch.episodes % n == 0
    },
    "batch.micro_batch": lambda r: {"per_device_train_batch_size": micro(r)},
    "sampling.temperature": lambda r: {"temperature": r.sampling.temperature},
    "sampling.top_p": lambda r: {"top_p": r.sampling.top_p},
    "sampling.top_k": lambda r: {"top_k": 0 if r.sampling.top_k == -1 else r.sampling.top_k},
    "limits.max_tokens_per_turn": lambda r: {
        f"generation_kwargs.{'max_tokens' if engine(r) == 'vllm' else 'max_new_tokens'}": (
            r.limits.max_tokens_per_turn
        )
    },
    "train.steps": lambda r: {"max_steps": r.train.steps * updates(r)},
    "train.save_every": lambda r: {
        "save_steps": (r.train.save_every or r.train.steps) * updates(r),
        "save_strategy": "steps",
    },
    "train.keep_checkpoints": lambda r: {"save_total_limit": r.train.keep_checkpoints},
    "hardware.engine_tensor_parallel": lambda r: {
        "vllm_tensor_parallel_size": r.hardware.engine_tensor_parallel
    },
    "hardware.device": lambda r: {"use_cpu": r.hardware.device == "cpu"},
    "hardware.engine": lambda r: {"use_vllm": engine(r) == "vllm"},
    # One process makes one part of the batch: `batch.episodes` above counts all of them.
    "hardware.nodes": lambda r: {"per_device_train_batch_size": micro(r)},
    "hardware.gpus_per_node": lambda r: {"per_device_train_batch_size": micro(r)},
}
"""Recipe key -> native path -> its value, or a function that says whether a value is right."""
FREE = {"adam_epsilon": 0.25, "delta": 3.5, "importance_sampling_level": "sequence"}
"""Native keys that no recipe key decides, with a value that is not their default."""
