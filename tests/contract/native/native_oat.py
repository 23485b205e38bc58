"""Where Oat's ``PPOArgs`` have the values of a recipe, written without the adapter's tables."""

from __future__ import annotations

import math

from gem_adapters.estimate import needs_critic
from gem_oat.cpu import install

install()

import tyro  # noqa: E402
from oat.algorithms.ppo import PPOArgs  # noqa: E402

from gem_oat.config import arguments, translate  # noqa: E402

SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


def configuration(recipe):
    """The arguments as Oat's own parser and validation make them.

    The validation refuses GPUs that are not here: those recipes are parsed alone.
    """
    if recipe.hardware.device == "gpu":
        return tyro.cli(PPOArgs, args=translate(recipe))
    return arguments(recipe)


def value(config, path):
    """The value of an argument."""
    return getattr(config, path)


def updates(r):
    """Optimizer steps per training step."""
    return r.algorithm.epochs * r.algorithm.minibatches


def warm_up(r):
    """Oat warms up for the ceiling of the ratio times the optimizer steps of the run."""
    total = r.train.steps * updates(r)
    wanted = r.algorithm.warmup_steps * updates(r)
    return lambda ratio: math.isclose(math.ceil(ratio * total), wanted, rel_tol=1e-9)


def kl(r, where):
    """The KL term's weight, in the loss or in the reward."""
    return r.algorithm.kl_coef if r.algorithm.kl_in == where else 0.0


def cap(r):
    """Largest weight of a token; None without a correction."""
    return r.algorithm.rollout_cap if r.algorithm.rollout_correction == "tis" else None


EXPECTED = {
    "seed": lambda r: {"seed": r.seed},
    "model.dtype": lambda r: {"bf16": r.model.dtype == "bfloat16", "fp16": False},
    "model.gradient_checkpointing": lambda r: {
        "gradient_checkpointing": r.model.gradient_checkpointing
    },
    "model.lora.rank": lambda r: {"lora_rank": r.model.lora.rank, "lora_dropout": 0},
    "model.lora.alpha": lambda r: {"lora_alpha": int(r.model.lora.alpha)},
    "model.lora.targets": lambda r: (  # set after parsing
        {"target_modules": list(r.model.lora.targets) or "all-linear"}
        if r.hardware.device == "cpu"
        else {}
    ),
    "algorithm.betas": lambda r: {
        "adam_beta_1": r.algorithm.betas[0],
        "adam_beta_2": r.algorithm.betas[1],
    },
    "algorithm.clip_low": lambda r: {"cliprange": r.algorithm.clip_low},
    "algorithm.rollout_correction": lambda r: {"tis_c": cap(r)},
    "algorithm.rollout_cap": lambda r: {"tis_c": cap(r)},
    "algorithm.clip_high": lambda r: {"cliprange": r.algorithm.clip_high},
    "algorithm.kl_coef": lambda r: {"beta": kl(r, "loss"), "kl_penalty_coef": kl(r, "reward")},
    "algorithm.kl_in": lambda r: {"beta": kl(r, "loss"), "kl_penalty_coef": kl(r, "reward")},
    "algorithm.estimator": lambda r: {
        "critic_type": "ppo" if needs_critic(r) else "drgrpo",
        "algo": lambda algorithm: "PPO" in str(algorithm),
    },
    "algorithm.epochs": lambda r: {"num_ppo_epochs": r.algorithm.epochs},
    "algorithm.minibatches": lambda r: {
        "max_epochs": lambda n: n == updates(r) * (r.batch.micro_batch or 1)
    },
    "algorithm.lr": lambda r: {"learning_rate": r.algorithm.lr},
    "algorithm.critic_lr": lambda r: {
        "critic_learning_rate": (
            r.algorithm.lr if r.algorithm.critic_lr is None else r.algorithm.critic_lr
        )
    },
    "algorithm.value_clip": lambda r: {"cliprange_value": r.algorithm.value_clip},
    "algorithm.lr_schedule": lambda r: (  # set after parsing
        {"lr_scheduler": SCHEDULES[r.algorithm.lr_schedule]} if r.hardware.device == "cpu" else {}
    ),
    "algorithm.warmup_steps": lambda r: {"lr_warmup_ratio": warm_up(r)},
    "algorithm.weight_decay": lambda r: {"l2": r.algorithm.weight_decay},
    "algorithm.max_grad_norm": lambda r: {"max_norm": r.algorithm.max_grad_norm},
    "batch.micro_batch": lambda r: {
        "train_batch_size_per_device": r.batch.micro_batch or 1,
        "train_batch_size": (r.batch.micro_batch or 1) * r.hardware.gpus,
    },
    "sampling.temperature": lambda r: {"temperature": r.sampling.temperature},
    "sampling.top_p": lambda r: {"top_p": r.sampling.top_p},
    "sampling.top_k": lambda r: {"top_k": r.sampling.top_k},
    "limits.max_tokens_per_turn": lambda r: {"generate_max_length": r.limits.max_tokens_per_turn},
    "limits.max_context_tokens": lambda r: {"max_model_len": r.limits.max_context_tokens},
    "train.keep_checkpoints": lambda r: {"max_save_num": max(2, r.train.keep_checkpoints)},
    "hardware.device": lambda r: {
        "vllm_sleep": r.hardware.device == "gpu",
        "enable_prefix_caching": r.hardware.device == "gpu",
        "vllm_gpu_ratio": 0.45 if r.hardware.device == "gpu" else 0.25,
    },
    "hardware.gpus_per_node": lambda r: {"gpus": r.hardware.gpus_per_node},
}
"""Recipe key -> argument -> its value, or a function that says whether a value is right."""
FREE = {"bon_temperature": 0.25, "vf_coef": 3.5, "zero_stage": 1}
"""Arguments that no recipe key decides, with a value that is not their default."""
