"""The key table: what becomes of each recipe key."""

from __future__ import annotations

from gem_adapters.key_table import KeyTable, applied, copied, default, refused

_ONE_PROCESS = "it trains in one process on a CPU; leave it at its default."
_NEWEST = "the model that is trained samples itself; leave it at its default."

TABLE = KeyTable(
    copied("algorithm.lr", "lr"),
    copied("algorithm.lr_schedule", "lr_schedule"),
    copied("algorithm.warmup_steps", "warmup_steps"),
    copied("algorithm.betas", "betas"),
    copied("algorithm.weight_decay", "weight_decay"),
    copied("algorithm.max_grad_norm", "max_grad_norm"),
    copied("algorithm.clip_low", "clip_low"),
    copied("algorithm.clip_high", "clip_high"),
    copied("algorithm.epochs", "epochs"),
    copied("algorithm.minibatches", "minibatches"),
    copied("algorithm.loss_aggregation", "loss_aggregation"),
    copied("algorithm.loss_constant", "loss_constant"),
    copied("sampling.temperature", "temperature"),
    copied("train.steps", "steps"),
    default("adam_eps", 1e-8, "as in torch.optim.AdamW"),
    applied("algorithm.estimator algorithm.options algorithm.gamma", "gem-core's advantages"),
    applied("seed batch.episodes batch.group_size", "the tasks of a step are gem-core's"),
    applied("sampling.top_p sampling.top_k", "the CPU engine of gem-core plays the episodes"),
    applied("eval.every eval.inside_episodes", "the loop plays the evaluation"),
    applied("train.log_episodes", "the loop writes the run directory"),
    applied("train.save_every train.save_minutes train.keep_checkpoints", "the loop saves"),
    applied("model.dtype", "weights are float32; other values are refused"),
    applied("model.gradient_checkpointing", "activations are kept; true is refused"),
    applied("hardware.device hardware.engine", "a CPU, and gem-core's engine; others are refused"),
    refused("model.lora.rank", "it trains all weights; leave it 0."),
    refused("model.lora.alpha", "it trains all weights; leave it out."),
    refused("model.lora.targets", "it trains all weights; leave it out."),
    refused("algorithm.lam", "it has no critic; use an estimator without lambda."),
    refused("algorithm.critic_lr", "it has no critic; leave it out."),
    refused("algorithm.value_clip", "it has no critic; leave it out."),
    refused("algorithm.kl_coef", "it has no KL term; leave it 0."),
    refused("algorithm.kl_in", "it has no KL term; leave it out."),
    refused("algorithm.entropy_coef", "it has no entropy bonus; leave it 0."),
    refused("algorithm.rollout_correction", "it samples with the weights that it trains."),
    refused("algorithm.rollout_cap", "it has no algorithm.rollout_correction; leave it out."),
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
