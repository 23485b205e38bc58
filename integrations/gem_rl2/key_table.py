"""The key table of RL2: recipe keys and the keys of 0.0.2's configuration.

A ``+`` stands before keys that RL2's own configuration does not have. Their names in the newer
source are in `gem_rl2.newer.key_names`.
"""

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
from gem_adapters.recipe_values import critic_lr, eval_top_p, groups, schedule
from gem_rl2 import values

TRAIN = "rollout.train_sampling_params"
TEST = "rollout.test_sampling_params"
NATIVE_FREE = frozenset(
    f"{worker}.max_inference_length_per_device" for worker in ("actor", "ref_actor", "critic")
)
"""Follow ``batch.micro_batch`` until ``[trainer.rl2]`` sets them: they change no figure."""
_STOPS = ("no_stop_trim", "stop_token_ids", "stop")
_AS_ACTOR = "the policy's"

TABLE = KeyTable(
    copied("name", "trainer.experiment_name"),
    copied("model.path", "actor.model_name"),
    copied("model.dtype", "rollout.server_args.dtype"),
    copied("model.gradient_checkpointing", "actor.gradient_checkpointing"),
    copied("algorithm.gamma", "adv.gamma"),
    copied("algorithm.lam", "adv.lamda"),
    copied("algorithm.kl_coef", "actor.kl.coef"),
    copied("algorithm.kl_in", "actor.kl.type"),
    copied("algorithm.entropy_coef", "actor.entropy.coef"),
    copied("algorithm.epochs", "+actor.epochs"),
    copied("algorithm.minibatches", "actor.update_per_rollout"),
    copied("algorithm.loss_aggregation", "actor.avg_level"),
    copied("algorithm.lr", "actor.lr"),
    copied("algorithm.betas", "+actor.betas"),
    copied("algorithm.weight_decay", "actor.weight_decay"),
    copied("algorithm.max_grad_norm", "actor.max_grad_norm"),
    copied("algorithm.value_clip", "critic.clip"),
    copied("batch.group_size", "train_data.responses_per_prompt"),
    copied("sampling.temperature", f"{TRAIN}.temperature"),
    copied("sampling.top_p", f"+{TRAIN}.top_p"),
    computed("eval.top_p sampling.top_p", f"+{TEST}.top_p", eval_top_p),
    # Evaluations are cut as training is.
    copied("sampling.top_k", f"+{TRAIN}.top_k +{TEST}.top_k"),
    copied("limits.max_tokens_per_turn", f"{TRAIN}.max_new_tokens"),
    copied("eval.temperature", f"{TEST}.temperature"),
    copied("eval.inside_episodes", "test_data.prompts_per_rollout"),
    copied("train.steps", "trainer.n_epochs"),
    copied("hardware.sequence_parallel", "actor.sp_size"),
    copied("hardware.tensor_parallel", "actor.tp_size"),
    computed("algorithm.estimator", "adv.estimator", values.estimator),
    computed(
        "algorithm.clip_low algorithm.clip_high",
        "actor.clip",
        lambda r: r.algorithm.clip_low,
        "both, which must be equal",
    ),
    computed("algorithm.epochs", "++critic.epochs", lambda _: "${actor.epochs}", _AS_ACTOR),
    computed(
        "algorithm.lr_schedule",
        "actor.scheduler",
        schedule,
    ),
    computed("algorithm.warmup_steps", "actor.warmup_ratio", values.warmup_ratio),
    computed("algorithm.betas", "++critic.betas", lambda _: "${actor.betas}", _AS_ACTOR),
    computed("algorithm.critic_lr", "critic.lr", critic_lr),
    computed("batch.episodes", "train_data.prompts_per_rollout", groups),
    computed("batch.micro_batch", "actor.max_length_per_device", values.tokens_per_pass),
    computed("eval.every", "trainer.test_freq", lambda r: r.eval.every or None, "null for 0"),
    computed("train.save_every", "trainer.save_freq", values.save_freq),
    default("trainer.project", "gem-core"),
    default("trainer.use_wandb", False, "trackers are in the recipe's `[track]`"),
    default("actor.kl.loss_estimator", "k3"),
    applied(
        "seed",
        "tasks are seeded by it, and requests where SGLang takes a seed (0.5.2 takes none)",
    ),
    applied("algorithm.options", "advantages are gem-core's (`advantages.py`)"),
    applied("hardware.engine", "the device's: SGLang on GPUs; others are refused"),
    applied(
        "algorithm.rollout_correction algorithm.rollout_cap",
        "the worker weights the tokens (`worker.py`)",
    ),
    applied(
        "sampling.support",
        "on a CPU logits are restricted to the tokens that could be drawn (`support.py`)",
    ),
    applied(
        "sampling.staleness sampling.refresh_turns",
        "the engine of a CPU keeps old weights (`gem_adapters.versions`)",
    ),
    applied("batch.max_tokens_per_device", "is `actor.max_length_per_device` where it is set"),
    applied("train.keep_checkpoints train.save_minutes", "the adapter's part of the loop"),
    applied("train.log_episodes", "the adapter writes the run directory"),
    applied("hardware.device", "the launcher: GPUs, or the CPU backend"),
    applied("hardware.gpus_per_node", "the launcher starts a process for each"),
    refused(
        "hardware.nodes",
        "it serves its engines on one node; use nodes = 1 and more GPUs.",
    ),
    refused(
        "algorithm.loss_constant",
        "it averages over tokens or sequences; change loss_aggregation.",
    ),
    refused("model.lora.rank", "it has no adapters; leave it 0, or take TRL, verl or OpenRLHF."),
    refused("model.lora.alpha", "it has no adapters; leave it out."),
    refused("model.lora.targets", "it has no adapters; leave it out."),
    refused(
        "hardware.engine_tensor_parallel",
        "not tried with gem-core; set rollout.server_args.tp_size.",
    ),
    refused(
        "hardware.sharding", "it divides everything among its ranks, always; leave it 'default'."
    ),
    refused(
        "hardware.offload",
        "it moves weights and optimizer states to the host between its phases by itself; "
        "actor.offload_model and actor.offload_optimizer turn that off.",
    ),
    # RL2's own filter would run before the statistics over the batch, and dies if nothing is left.
    fixed(
        "rollout.dynamic_filtering",
        False,
        "the estimator needs every episode of a step, so it must stay off",
    ),
    fixed(
        "critic.avg_level",
        "token",
        "the critic's error is a mean over all that it is trained on",
    ),
    unset(
        "train_data.path test_data.path",
        "the tasks follow from the recipe: set env and seed instead",
    ),
    unset("test_data.responses_per_prompt", keys="eval.inside_episodes"),
    unset("rollout.env_path", "gem-core plays the episodes: set env instead"),
    unset("rollout.max_turns", "set limits.max_turns instead"),
    unset("actor.tis_coef", keys="algorithm.rollout_correction"),
    unset(
        " ".join(f"{table}.{name}" for table in (TRAIN, TEST) for name in _STOPS),
        "the stop tokens are those of context.template, and they are kept",
    ),
    unset(f"{TEST}.max_new_tokens", keys="limits.max_tokens_per_turn"),
    unset("adv.global_norm adv.norm_var", keys="algorithm.estimator algorithm.options"),
    unset("trainer.save_dir", "checkpoints are in the run directory: set --run instead"),
    unset("trainer.load_ckpt_from", "use --resume instead"),
)
