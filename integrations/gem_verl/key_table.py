"""The key table of verl: recipe keys and the keys of its configuration."""

from __future__ import annotations

from gem_adapters.estimate import needs_critic
from gem_adapters.key_table import (
    KeyTable,
    applied,
    computed,
    copied,
    default,
    fixed,
    only_if,
    refused,
    unset,
)
from gem_adapters.recipe_values import critic_lr, eval_top_p, minibatch
from gem_core.env.registration.references import TRUST_VARIABLE
from gem_core.runs.directory.run_dir import RUN_VARIABLE
from gem_verl import values

ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"
REF = "actor_rollout_ref.ref"
ROLLOUT = "actor_rollout_ref.rollout"
SHARDED = (f"{ACTOR}.fsdp_config", f"{REF}.fsdp_config", "critic.fsdp")
CORRECTION = "algorithm.rollout_correction"
SAMPLER = "trainer.v1.sampler"
ENVIRONMENT = "ray_kwargs.ray_init.runtime_env.env_vars"


def _in(owners: tuple[str, ...], *names: str) -> str:
    """Return each name in each owner, as words."""
    return " ".join(f"{owner}.{name}" for owner in owners for name in names)


def _both(*names: str) -> str:
    """Return each name for the policy and for the critic, as words."""
    return _in((ACTOR, "critic"), *names)


_OPTIMIZERS = (f"{ACTOR}.optim", "critic.optim")
_READERS = (REF, ROLLOUT)
_PARALLEL = (ACTOR, REF, "critic", *SHARDED)
_PRECISIONS = tuple(f"mixed_precision.{kind}_dtype" for kind in ("param", "reduce", "buffer"))
_A_TASK_EACH = "the members of a group are tasks of their own"
_RUN_DIRECTORY = "the launcher sets it; name the run directory with --run instead"
_ASYNCHRONOUS = (
    "a step's batch would be the episodes that finished first, sampled under several versions of "
    "the weights, and not the recipe's tasks of that step; only the synchronous trainer is used"
)

TABLE = KeyTable(
    copied("name", "trainer.experiment_name"),
    copied(
        "seed",
        f"data.seed {_both('data_loader_seed')} {ACTOR}.fsdp_config.seed {ROLLOUT}.seed "
        "critic.fsdp.seed",
    ),
    copied("model.dtype", f"{ROLLOUT}.dtype"),
    copied("model.lora.rank", f"{MODEL}.lora_rank"),
    copied(
        "model.gradient_checkpointing",
        _in((MODEL, "critic.model"), "enable_gradient_checkpointing"),
    ),
    copied("algorithm.options", "+algorithm.gem_options"),
    copied("algorithm.gamma", "algorithm.gamma"),
    copied("algorithm.lam", "algorithm.lam"),
    copied("algorithm.clip_low", f"{ACTOR}.clip_ratio_low"),
    copied("algorithm.clip_high", f"{ACTOR}.clip_ratio_high"),
    copied("algorithm.kl_coef", f"{ACTOR}.kl_loss_coef"),
    copied("algorithm.entropy_coef", f"{ACTOR}.entropy_coeff"),
    copied("algorithm.rollout_cap", f"{CORRECTION}.rollout_is_threshold"),
    copied("algorithm.epochs", _both("ppo_epochs")),
    copied("algorithm.loss_constant", f"{ACTOR}.loss_scale_factor"),
    copied("algorithm.lr", f"{ACTOR}.optim.lr"),
    copied("algorithm.lr_schedule", _in(_OPTIMIZERS, "lr_scheduler_type")),
    copied("algorithm.warmup_steps", _in(_OPTIMIZERS, "lr_warmup_steps")),
    copied("algorithm.betas", _in(_OPTIMIZERS, "betas")),
    copied("algorithm.weight_decay", _in(_OPTIMIZERS, "weight_decay")),
    copied("algorithm.max_grad_norm", _in(_OPTIMIZERS, "clip_grad")),
    copied("algorithm.value_clip", "critic.cliprange_value"),
    copied("batch.episodes", "data.train_batch_size"),
    copied(
        "batch.micro_batch",
        f"{_both('ppo_micro_batch_size_per_gpu')} "
        f"{_in(_READERS, 'log_prob_micro_batch_size_per_gpu')}",
    ),
    copied("sampling.temperature", f"{ROLLOUT}.temperature"),
    copied("sampling.top_p", f"{ROLLOUT}.top_p"),
    computed("eval.top_p sampling.top_p", f"{ROLLOUT}.val_kwargs.top_p", eval_top_p),
    # Evaluations are cut in the same way: those before and after training are, too.
    copied("sampling.top_k", _in((ROLLOUT, f"{ROLLOUT}.val_kwargs"), "top_k")),
    copied("eval.temperature", f"{ROLLOUT}.val_kwargs.temperature"),
    copied("train.steps", "trainer.total_training_steps"),
    copied(
        "train.keep_checkpoints", "trainer.max_actor_ckpt_to_keep trainer.max_critic_ckpt_to_keep"
    ),
    copied("hardware.nodes", "trainer.nnodes"),
    copied("hardware.gpus_per_node", "trainer.n_gpus_per_node"),
    copied("hardware.engine_tensor_parallel", f"{ROLLOUT}.tensor_model_parallel_size"),
    copied("hardware.sequence_parallel", _in(_PARALLEL, "ulysses_sequence_parallel_size")),
    computed(
        "model.dtype",
        _in(SHARDED, "dtype"),
        only_if(values.is_float32, "float32"),
        "`float32` for `float32`, else verl's own: float32 weights, bfloat16 computation",
    ),
    computed(
        "model.dtype",
        " ".join(f"+{name}" for name in _in(SHARDED, *_PRECISIONS).split()),
        only_if(values.is_float32, "fp32"),
        "`fp32` for `float32`, else verl's own",
    ),
    computed(
        "sampling.support",
        f"{MODEL}.external_lib",
        values.worker_plugin,
        "the adapter's part of verl's workers, which on a CPU restricts logits to the tokens that "
        "could be drawn (`support.py`)",
    ),
    applied(
        "sampling.staleness sampling.refresh_turns",
        "the engine of a CPU keeps old weights (`gem_adapters.versions`)",
    ),
    computed("model.lora.alpha", f"{MODEL}.lora_alpha", values.lora_alpha),
    computed("model.lora.targets", f"{MODEL}.target_modules", values.lora_targets),
    computed(
        "model.lora.rank",
        f"{MODEL}.lora.merge",
        lambda r: r.model.lora.rank > 0,
        "whether above 0: the engine gets whole weights",
    ),
    computed("algorithm.estimator", "algorithm.adv_estimator", values.estimator),
    computed("algorithm.estimator", "critic.enable", needs_critic),
    computed("algorithm.critic_lr", "critic.optim.lr", critic_lr),
    computed("algorithm.minibatches", _both("ppo_mini_batch_size"), minibatch),
    computed(
        "algorithm.minibatches",
        _both("shuffle"),
        lambda r: r.algorithm.minibatches > 1,
        "whether there are several",
    ),
    computed("algorithm.loss_aggregation", f"{ACTOR}.loss_agg_mode", values.loss_aggregation),
    computed(
        "algorithm.kl_coef",
        f"{ACTOR}.use_kl_loss",
        lambda r: bool(r.algorithm.kl_coef),
        "whether above 0",
    ),
    computed(
        "algorithm.rollout_correction",
        f"{CORRECTION}.rollout_is",
        only_if(lambda r: r.algorithm.rollout_correction == "tis", "token"),
        "`token` for `tis`",
    ),
    computed(
        "batch.micro_batch",
        f"{_both('use_dynamic_bsz')} {_in(_READERS, 'log_prob_use_dynamic_bsz')}",
        values.is_packed,
    ),
    computed(
        "batch.max_tokens_per_device",
        f"{_both('ppo_max_token_len_per_gpu')} {_in(_READERS, 'log_prob_max_token_len_per_gpu')} "
        "+critic.ppo_infer_max_token_len_per_gpu",  # the one that verl's trainer reads
        values.most_tokens,
    ),
    computed(
        "limits.max_context_tokens",
        "data.max_prompt_length data.max_response_length",
        values.max_context,
    ),
    computed("limits.max_context_tokens", f"{ROLLOUT}.max_model_len", values.max_model_len),
    computed(
        "eval.temperature",
        f"{ROLLOUT}.val_kwargs.do_sample",
        lambda r: r.eval.temperature > 0,
        "whether above 0",
    ),
    computed("eval.every", "trainer.test_freq", lambda r: r.eval.every or -1, "-1 for 0: never"),
    computed("train.save_every", "trainer.save_freq", values.save_freq),
    computed("hardware.device", "trainer.device", values.device),
    computed("hardware.engine", f"{ROLLOUT}.name reward.reward_model.rollout.name", values.engine),
    computed("hardware.sharding", _in(SHARDED, "reshard_after_forward"), values.reshards),
    computed(
        "hardware.offload",
        _in(SHARDED, "param_offload"),
        only_if(values.offloads_weights, True),
        "true for `all`",
    ),
    computed(
        "hardware.offload",
        f"{ACTOR}.fsdp_config.optimizer_offload critic.fsdp.optimizer_offload",
        only_if(values.offloads_optimizer, True),
        "true for `optimizer` and `all`",
    ),
    default(f"{ACTOR}.clip_ratio_c", 1e9, "plain PPO: never a second clip of negative advantages"),
    default(_both("strategy"), "fsdp2"),
    default(
        f"{MODEL}.use_remove_padding",
        only_if(lambda r: not values.has_flash_attention(r), False),
        f"false where `{values.ATTENTION}` is not flash-attention: rows are padded",
    ),
    default(f"{ACTOR}.checkpoint.save_contents", ["model", "optimizer", "extra", "hf_model"]),
    default(
        f"{ACTOR}.checkpoint.load_contents", ["model", "optimizer", "extra"], "else those saved"
    ),
    default("data.dataloader_num_workers", 0),
    default("reward.num_workers", 1),
    default("trainer.project_name", "gem-core"),
    default("trainer.logger", ["console"]),
    default("trainer.val_before_train", False),
    default(
        "+ray_kwargs.ray_init.address",
        only_if(lambda r: r.hardware.nodes > 1, "auto"),
        "`auto` with several nodes: their Ray cluster runs already",
    ),
    applied("batch.group_size", _A_TASK_EACH),
    applied("eval.inside_episodes", "the tasks of the evaluation's data set"),
    applied("train.log_episodes", "the adapter writes the run directory"),
    applied("train.save_minutes", "the adapter asks verl for a checkpoint (`saving.py`)"),
    refused(
        "algorithm.kl_in",
        "verl adds a KL in the reward to single tokens, where it would count as reward of turns. "
        'Use algorithm.kl_in = "loss".',
    ),
    refused(
        "hardware.tensor_parallel",
        "its FSDP2 engine shares weights, not layers; set hardware.sequence_parallel or leave it "
        "1.",
    ),
    fixed(f"{ACTOR}.calculate_entropy", True, "the update's entropy is a common metric"),
    fixed(f"{ROLLOUT}.calculate_log_probs", True),
    fixed(f"{ROLLOUT}.agent.default_agent_loop", "gem"),
    fixed("data.custom_cls.path", "pkg://gem_verl.rollout"),
    fixed("data.custom_cls.name", "TaskDataset"),
    fixed("data.train_files", "gem:train"),
    fixed("data.val_files", "gem:eval"),
    fixed("data.shuffle", False),
    fixed("trainer.use_v1", True),
    fixed("trainer.v1.trainer_mode", "sync", _ASYNCHRONOUS),
    fixed(f"{SAMPLER}.custom_sampler.path", "pkg://gem_verl.sampler"),
    fixed(f"{SAMPLER}.custom_sampler.name", "GemSampler"),
    fixed("trainer.total_epochs", 1, "the tasks of all steps are one epoch: set train.steps"),
    fixed(
        f"{ROLLOUT}.n {ACTOR}.rollout_n {REF}.rollout_n critic.rollout_n",
        1,
        f"{_A_TASK_EACH}: set batch.group_size",
    ),
    fixed(
        "critic.loss_agg_mode",
        "token-mean",
        "the critic's error is a mean over tokens, whatever algorithm.loss_aggregation is",
    ),
    fixed(
        "algorithm.use_kl_in_reward", False, "a KL term per token would count as reward of turns"
    ),
    unset(f"{MODEL}.path critic.model.path", keys="model.path"),
    unset(f"data.tokenizer {MODEL}.tokenizer_path critic.model.tokenizer_path", keys="model.path"),
    unset(f"{MODEL}.lora_adapter_path {MODEL}.exclude_modules", keys="model.lora.rank"),
    unset(f"{ROLLOUT}.ignore_eos {MODEL}.custom_chat_template", keys="context.template"),
    unset(f"{ROLLOUT}.prompt_length {ROLLOUT}.response_length", keys="limits.max_context_tokens"),
    unset("algorithm.norm_adv_by_std_in_grpo", keys="algorithm.options"),
    unset(f"{ACTOR}.clip_ratio", keys="algorithm.clip_low algorithm.clip_high"),
    unset(
        _in(("algorithm.kl_ctrl",), "type", "kl_coef", "horizon", "target_kl"),
        keys="algorithm.kl_coef",
    ),
    unset(
        _in(
            (CORRECTION,),
            "rollout_rs_threshold",
            "bypass_mode",
            "loss_type",
            "rollout_is_batch_normalize",
        ),
        keys="algorithm.rollout_correction",
    ),
    unset(f"{ACTOR}.optim.override_optimizer_config.lr", keys="algorithm.lr"),
    unset("critic.optim.override_optimizer_config.lr", keys="algorithm.critic_lr"),
    unset(
        _in(_OPTIMIZERS, "total_training_steps", "min_lr_ratio", "num_cycles", "warmup_style"),
        keys="algorithm.lr_schedule",
    ),
    unset(_in(_OPTIMIZERS, "lr_warmup_steps_ratio"), keys="algorithm.warmup_steps"),
    unset(_in(_OPTIMIZERS, "override_optimizer_config.betas"), keys="algorithm.betas"),
    unset(
        _in(_OPTIMIZERS, "override_optimizer_config.weight_decay"), keys="algorithm.weight_decay"
    ),
    unset(_both("grad_clip"), keys="algorithm.max_grad_norm"),
    unset("data.gen_batch_size", keys="batch.episodes"),
    unset(
        f"{_both('ppo_micro_batch_size')} critic.forward_micro_batch_size "
        f"{_in(_READERS, 'log_prob_micro_batch_size')}",
        keys="batch.micro_batch",
    ),
    unset(f"{ROLLOUT}.do_sample", keys="sampling.temperature"),
    unset(
        f"data.val_max_samples data.val_batch_size {ROLLOUT}.val_kwargs.n",
        keys="eval.inside_episodes",
    ),
    unset("data.train_max_samples", keys="train.steps"),
    unset(f"{ROLLOUT}.n_gpus_per_node", keys="hardware.gpus_per_node"),
    unset(_in(SHARDED, "fsdp_size", "offload_policy"), keys="hardware.sharding"),
    unset(
        "algorithm.filter_groups",
        "it exchanges groups for others, so that a step trains on other tasks than the recipe's; "
        "the adapter's sampler does not do that. Leave it out",
    ),
    unset(
        f"{SAMPLER}.sync_refill_failed_groups",
        "the adapter's sampler exchanges no group; episodes that broke are left out of the update",
    ),
    unset("trainer.v1.colocate_async trainer.v1.separate_async", _ASYNCHRONOUS),
    unset(f"{SAMPLER}.max_off_policy_threshold {SAMPLER}.max_off_policy_strategy", _ASYNCHRONOUS),
    unset(
        f"{CORRECTION}.rollout_rs",
        "it takes tokens out of the mask before the estimator runs, which would take what is left "
        'of a turn for two turns. Use algorithm.rollout_correction = "tis"',
    ),
    unset("data.gem_recipe", "the launcher sets it, from the recipe"),
    unset(f"data.gem_run {ENVIRONMENT}.{RUN_VARIABLE}", _RUN_DIRECTORY),
    unset(
        f"{ENVIRONMENT}.{TRUST_VARIABLE}",
        "the launcher sets it; give --trust to the command instead",
    ),
    unset("trainer.default_local_dir", "it is in the run directory; name that with --run instead"),
    unset("trainer.resume_mode trainer.resume_from_path", "continue a run with --resume instead"),
)
