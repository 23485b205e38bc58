"""The key table: what becomes of each recipe key."""

from __future__ import annotations

from gem_adapters.key_table import (
    KeyTable,
    applied,
    computed,
    copied,
    default,
    fixed,
    refused,
    unset,
)
from gem_core.runs.recipe.recipe import Recipe

_ONE_PROCESS = "the adapter trains in one process on a CPU; leave it at its default."
_NEWEST = "the model that is trained samples itself; leave it at its default."
_MEANS = {"token": "token_mean", "sequence": "prompt_mean"}


def _aggregation(recipe: Recipe) -> str:
    """`token_mean` for token, `prompt_mean` for sequence; constant is refused"""
    return _MEANS[recipe.algorithm.loss_aggregation]


def _clip(recipe: Recipe) -> tuple[float, float]:
    """the pair of both"""
    return recipe.algorithm.clip_low, recipe.algorithm.clip_high


def _bonus(recipe: Recipe) -> bool:
    """whether it is above 0"""
    return recipe.algorithm.entropy_coef > 0


TABLE = KeyTable(
    # GRPOLoss
    computed("algorithm.clip_low algorithm.clip_high", "clip_epsilon", _clip),
    computed("algorithm.loss_aggregation", "aggregation", _aggregation),
    computed("algorithm.entropy_coef", "entropy_bonus", _bonus),
    copied("algorithm.entropy_coef", "entropy_coeff"),
    copied("algorithm.kl_coef", "kl_to_ref_coeff"),
    fixed("masking_strategy", "rlhf", "episodes have several turns"),
    unset("kl_mask_threshold", "it would leave out tokens that the recipe trains"),
    unset("kl_to_inference_coeff", "set algorithm.kl_coef instead: the KL is to the initial model"),
    unset("reduction", "set algorithm.loss_aggregation instead"),
    unset("samples_mc_entropy", "the entropy is computed, not sampled"),
    # GRPOTrainer and its stepper
    copied("algorithm.epochs", "num_epochs"),
    copied("algorithm.minibatches", "optim_steps_per_batch"),
    copied("algorithm.max_grad_norm", "clip_norm"),
    fixed("gradient_accumulation_steps", 1, "it weights passes alike, whatever their tokens"),
    fixed("mixed_precision", False, "weights and activations are float32"),
    # AdamW and LambdaLR of torch, which TorchRL is given
    copied("algorithm.lr", "lr"),
    copied("algorithm.betas", "betas"),
    copied("algorithm.weight_decay", "weight_decay"),
    default("eps", 1e-8, "as in torch.optim.AdamW"),
    copied("algorithm.lr_schedule", "lr_schedule"),
    copied("algorithm.warmup_steps", "warmup_steps"),
    copied("train.steps", "steps"),
    # the actor
    copied("sampling.temperature", "temperature"),
    applied("algorithm.estimator algorithm.options algorithm.gamma", "gem-core's advantages"),
    applied("seed batch.episodes batch.group_size", "the tasks of a step are gem-core's"),
    applied("sampling.top_p sampling.top_k", "the CPU engine of gem-core plays the episodes"),
    applied("eval.every eval.inside_episodes", "a hook plays the evaluation"),
    applied("train.log_episodes", "a hook writes the run directory"),
    applied("train.save_every train.save_minutes train.keep_checkpoints", "a hook saves"),
    applied("model.dtype", "weights are float32; other values are refused"),
    applied("model.gradient_checkpointing", "activations are kept; true is refused"),
    applied("hardware.device hardware.engine", "a CPU, and gem-core's engine; others are refused"),
    refused(
        "algorithm.loss_constant",
        "GRPOLoss has means only; use loss_aggregation 'token' or 'sequence'.",
    ),
    refused("algorithm.kl_in", "GRPOLoss adds the KL term to the loss; use kl_in = 'loss'."),
    refused("algorithm.rollout_correction", "GRPOLoss has no weights of the engine; use 'none'."),
    refused("algorithm.rollout_cap", "it has no algorithm.rollout_correction; leave it out."),
    refused("algorithm.lam", "GRPOLoss has no critic; use an estimator without lambda."),
    refused("algorithm.critic_lr", "GRPOLoss has no critic; leave it out."),
    refused("algorithm.value_clip", "GRPOLoss has no critic; leave it out."),
    refused("model.lora.rank", "the adapter trains all weights; leave it 0."),
    refused("model.lora.alpha", "the adapter trains all weights; leave it out."),
    refused("model.lora.targets", "the adapter trains all weights; leave it out."),
    refused(
        "sampling.support",
        "its log-probabilities are over all tokens; leave it 'all', or take another trainer.",
    ),
    refused("batch.micro_batch", "a minibatch is one forward pass; raise algorithm.minibatches."),
    refused("batch.max_tokens_per_device", "a minibatch is one forward pass; leave it out."),
    refused("hardware.nodes", _ONE_PROCESS),
    refused("hardware.gpus_per_node", _ONE_PROCESS),
    refused("hardware.engine_tensor_parallel", _ONE_PROCESS),
    refused("hardware.tensor_parallel", _ONE_PROCESS),
    refused("hardware.sequence_parallel", _ONE_PROCESS),
    refused("hardware.sharding", _ONE_PROCESS),
    refused("hardware.offload", _ONE_PROCESS),
    refused("sampling.staleness", _NEWEST),
    refused("sampling.refresh_turns", _NEWEST),
)
