"""Where RL2's configuration has the values of a recipe, written without the adapter's tables."""

from __future__ import annotations

import math

from native_hydra import compose, value

from gem_adapters.estimate import needs_critic
from gem_rl2.config import translate
from gem_rl2.native import compose_native

__all__ = ["EXPECTED", "FREE", "configuration", "value"]

SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}
TRAIN = "rollout.train_sampling_params"


def configuration(recipe):
    """RL2's configuration of a run with ``recipe``."""
    return compose(compose_native, translate(recipe))


def both(name, expected):
    """The same value for the policy and the critic."""
    return {f"actor.{name}": expected, f"critic.{name}": expected}


def warm_up(r):
    """RL2 warms up for ``int(ratio * updates)``."""
    updates = r.algorithm.epochs * r.algorithm.minibatches
    wanted = r.algorithm.warmup_steps * updates
    return lambda ratio: math.isclose(int(ratio * r.train.steps * updates), wanted, rel_tol=1e-9)


def tokens(r):
    """Tokens per forward pass, which RL2 fills with sequences of any length."""
    if r.batch.max_tokens_per_device:
        return r.batch.max_tokens_per_device
    shared = r.hardware.sequence_parallel * r.hardware.tensor_parallel
    processes = r.algorithm.minibatches * r.hardware.gpus_per_node // shared
    minibatch = math.ceil(r.batch.episodes / processes)
    return min(r.batch.micro_batch or minibatch, minibatch) * r.limits.max_context_tokens


EXPECTED = {
    "model.dtype": lambda r: {"rollout.server_args.dtype": r.model.dtype},
    "model.path": lambda r: {"actor.model_name": r.model.path, "critic.model_name": r.model.path},
    "model.gradient_checkpointing": lambda r: both(
        "gradient_checkpointing", r.model.gradient_checkpointing
    ),
    "algorithm.betas": lambda r: both("betas", list(r.algorithm.betas)),
    "algorithm.clip_low": lambda r: {"actor.clip": r.algorithm.clip_low},
    "algorithm.clip_high": lambda r: {"actor.clip": r.algorithm.clip_high},
    "algorithm.kl_coef": lambda r: {"actor.kl.coef": r.algorithm.kl_coef},
    "algorithm.kl_in": lambda r: {"actor.kl.type": r.algorithm.kl_in},
    "algorithm.entropy_coef": lambda r: {"actor.entropy.coef": r.algorithm.entropy_coef},
    "algorithm.estimator": lambda r: {
        "adv.estimator": lambda name: (name == "gae") == needs_critic(r)
    },
    "algorithm.gamma": lambda r: {"adv.gamma": r.algorithm.gamma},
    "algorithm.lam": lambda r: {"adv.lamda": r.algorithm.lam},
    "algorithm.epochs": lambda r: both("epochs", r.algorithm.epochs),
    "algorithm.minibatches": lambda r: both("update_per_rollout", r.algorithm.minibatches),
    "algorithm.loss_aggregation": lambda r: {
        "actor.avg_level": r.algorithm.loss_aggregation,
        "critic.avg_level": "token",
    },
    "algorithm.lr": lambda r: {"actor.lr": r.algorithm.lr},
    "algorithm.critic_lr": lambda r: {
        "critic.lr": r.algorithm.lr if r.algorithm.critic_lr is None else r.algorithm.critic_lr
    },
    "algorithm.value_clip": lambda r: {"critic.clip": r.algorithm.value_clip},
    "algorithm.lr_schedule": lambda r: both("scheduler", SCHEDULES[r.algorithm.lr_schedule]),
    "algorithm.warmup_steps": lambda r: both("warmup_ratio", warm_up(r)),
    "algorithm.weight_decay": lambda r: both("weight_decay", r.algorithm.weight_decay),
    "algorithm.max_grad_norm": lambda r: both("max_grad_norm", r.algorithm.max_grad_norm),
    "batch.episodes": lambda r: {
        "train_data.prompts_per_rollout": r.batch.episodes // r.batch.group_size
    },
    "batch.group_size": lambda r: {"train_data.responses_per_prompt": r.batch.group_size},
    "batch.micro_batch": lambda r: both("max_length_per_device", tokens(r)),
    "batch.max_tokens_per_device": lambda r: both("max_length_per_device", tokens(r)),
    "hardware.sequence_parallel": lambda r: both("sp_size", r.hardware.sequence_parallel),
    "hardware.tensor_parallel": lambda r: both("tp_size", r.hardware.tensor_parallel),
    "sampling.temperature": lambda r: {
        f"{TRAIN}.temperature": r.sampling.temperature,
        "actor.temperature": r.sampling.temperature,
    },
    "sampling.top_p": lambda r: {
        f"{TRAIN}.top_p": r.sampling.top_p,
        "rollout.test_sampling_params.top_p": r.eval.top_p or r.sampling.top_p,
    },
    "sampling.top_k": lambda r: {
        f"{TRAIN}.top_k": r.sampling.top_k,
        "rollout.test_sampling_params.top_k": r.sampling.top_k,
    },
    "limits.max_tokens_per_turn": lambda r: {
        f"{TRAIN}.max_new_tokens": r.limits.max_tokens_per_turn
    },
    "eval.every": lambda r: {"trainer.test_freq": r.eval.every or None},
    "eval.inside_episodes": lambda r: {"test_data.prompts_per_rollout": r.eval.inside_episodes},
    "eval.top_p": lambda r: {
        "rollout.test_sampling_params.top_p": r.eval.top_p or r.sampling.top_p
    },
    "eval.temperature": lambda r: {"rollout.test_sampling_params.temperature": r.eval.temperature},
    "train.steps": lambda r: {"trainer.n_epochs": r.train.steps},
    "train.save_every": lambda r: {"trainer.save_freq": r.train.save_every or r.train.steps},
    # RL2 0.0.2 has one engine, SGLang, and no key that names it; others are refused.
    "hardware.engine": lambda r: {},
}
"""Recipe key -> native path -> its value, or a function that says whether a value is right."""
FREE = {"actor.freeze_steps": 2, "actor.offload_model": False}
"""Native keys that no recipe key decides, with a value that is not their default."""
