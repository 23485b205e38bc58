"""The key table of OpenRLHF: recipe keys and its dotted command-line flags."""

from __future__ import annotations

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
from gem_adapters.recipe_values import critic_lr, groups, minibatch, schedule
from gem_openrlhf import values

_ROWS = "prompts come from the environments, and the adapter writes the rows for them"
_CORRECTION = "algorithm.rollout_correction is truncated importance sampling"

TABLE = KeyTable(
    copied("seed", "train.seed"),
    copied("model.path", "actor.model_name_or_path"),
    copied("model.gradient_checkpointing", "actor.gradient_checkpointing_enable"),
    copied("model.lora.rank", "ds.lora.rank"),
    copied("algorithm.kl_coef", "algo.kl.init_coef"),
    copied("algorithm.entropy_coef", "actor.entropy_coef"),  # also at 0: then it is only logged
    copied("algorithm.epochs", "train.max_epochs"),
    copied("algorithm.lr", "actor.adam.lr"),
    copied("algorithm.betas", "actor.adam.betas critic.adam.betas"),
    copied("algorithm.weight_decay", "actor.adam.weight_decay critic.adam.weight_decay"),
    copied("algorithm.max_grad_norm", "actor.max_norm critic.max_norm"),
    copied("algorithm.value_clip", "critic.value_clip"),
    copied("batch.group_size", "rollout.n_samples_per_prompt"),
    copied("batch.max_tokens_per_device", "rollout.max_tokens_per_gpu train.max_tokens_per_gpu"),
    copied("sampling.temperature", "rollout.temperature"),
    copied("sampling.top_p", "rollout.top_p"),
    copied("limits.max_context_tokens", "data.max_len"),
    copied("eval.temperature", "eval.temperature"),
    copied("train.keep_checkpoints", "ckpt.max_num"),
    copied("hardware.engine_tensor_parallel", "vllm.tensor_parallel_size"),
    computed("model.lora.alpha", "ds.lora.alpha", values.lora_alpha),
    computed("model.lora.targets", "ds.lora.target_modules", values.lora_targets),
    computed("algorithm.estimator", "algo.advantage.estimator", values.estimator),
    computed("algorithm.clip_low algorithm.clip_high", "actor.eps_clip_low_high", values.clip),
    computed("algorithm.kl_in", "algo.kl.use_loss", values.kl_in_loss),
    computed(
        "algorithm.rollout_correction",
        "algo.advantage.is_correction_level",
        lambda r: "token" if r.algorithm.rollout_correction == "tis" else "off",
        "`token` for `tis`, else `off`",
    ),
    computed(
        "algorithm.rollout_cap",
        "algo.advantage.is_correction_threshold",
        lambda r: [0.0, r.algorithm.rollout_cap],
        "from 0 to the cap",
    ),
    computed("algorithm.minibatches", "train.batch_size", minibatch),
    computed("algorithm.loss_aggregation", "actor.loss_agg_mode", values.loss_aggregation),
    computed("algorithm.lr_schedule", "actor.lr_scheduler critic.lr_scheduler", schedule),
    computed(
        "algorithm.warmup_steps",
        "actor.lr_warmup_ratio critic.lr_warmup_ratio",
        values.warmup_ratio,
    ),
    computed("algorithm.critic_lr", "critic.adam.lr", critic_lr),
    computed("batch.episodes", "rollout.batch_size", groups),
    computed(
        "batch.micro_batch", "rollout.micro_batch_size train.micro_batch_size", values.micro_batch
    ),
    computed("batch.max_tokens_per_device", "train.dynamic_batch_enable", values.is_dynamic),
    computed("eval.every", "eval.steps", values.eval_steps),
    computed("train.save_every", "ckpt.save_steps", values.save_steps),
    computed(
        "hardware.nodes",
        "actor.num_nodes ref.num_nodes critic.num_nodes reward.num_nodes",
        values.nodes,
    ),
    computed(
        "hardware.gpus_per_node",
        "actor.num_gpus_per_node ref.num_gpus_per_node critic.num_gpus_per_node "
        "reward.num_gpus_per_node",
        values.train_gpus,
    ),
    computed("hardware.sharding", "ds.zero_stage", values.zero_stage),
    computed("hardware.offload", "ds.adam_offload", values.offloads_optimizer),
    default("algo.kl.estimator", values.kl_estimator, keys="algorithm.kl_in"),
    default("ds.attn_implementation", only_if(values.on_cpu, "sdpa"), "`sdpa` on a CPU"),
    default("ds.enable_sleep", values.training_sleeps, keys="hardware.device hardware.sharding"),
    default("train.colocate_all", only_if(values.on_gpu, True), "on GPUs"),
    default("vllm.enable_prefix_caching", only_if(values.on_gpu, True), "on GPUs"),
    default("vllm.enable_sleep", only_if(values.takes_turns, True), "on GPUs, unless asynchronous"),
    default("vllm.enforce_eager", values.eager_on_cpu, keys="hardware.device hardware.engine"),
    default(
        "vllm.gpu_memory_utilization",
        only_if(values.takes_turns, 0.6),
        "on GPUs, unless asynchronous: training needs the rest",
    ),
    default(
        "vllm.num_engines",
        values.engines,
        keys="hardware.device hardware.gpus_per_node hardware.engine_tensor_parallel",
    ),
    default("vllm.sync_backend", only_if(values.on_cpu, "gloo"), "`gloo` on a CPU"),
    applied(
        "algorithm.estimator algorithm.options algorithm.gamma algorithm.lam",
        "advantages are gem-core's, in OpenRLHF's experience maker (`advantages.py`)",
    ),
    applied("eval.top_p", "the actor that evaluates sends it (`actors.py`)"),
    applied(
        "sampling.support",
        "on a CPU logits are restricted to the tokens that could be drawn (`support.py`)",
    ),
    applied(
        "sampling.staleness sampling.refresh_turns",
        "the engine of a CPU keeps old weights (`gem_adapters.versions`)",
    ),
    applied("sampling.top_k", "the executor sends it with each request (`rollout.py`)"),
    applied("eval.inside_episodes train.steps", "the rows that the adapter writes as data"),
    applied("train.log_episodes train.save_minutes", "the adapter's part of the training loop"),
    applied("model.dtype", "OpenRLHF's own precision on GPUs, the harness's on a CPU"),
    applied("hardware.engine", "vLLM, or the CPU harness"),
    refused(
        "algorithm.loss_constant",
        "its loss is a mean; use loss_aggregation 'token' or 'sequence'.",
    ),
    refused(
        "hardware.tensor_parallel",
        "DeepSpeed's takes bfloat16 only, so that its gradient cannot be compared with one "
        "process's to more than 2e-4; use more GPUs with hardware.sharding = 'full'.",
    ),
    refused(
        "hardware.sequence_parallel",
        "its ring attention runs on CUDA kernels only and was never compared with one process; "
        "use more GPUs with hardware.sharding = 'full'.",
    ),
    fixed("algo.advantage.is_correction_gating", "ratio", _CORRECTION),
    fixed("algo.advantage.is_correction_mode", "clip", _CORRECTION),
    fixed("ckpt.best_metric_key", "none", "the newest checkpoints are kept, none as the best"),
    fixed("data.label_key", "label", _ROWS),
    fixed("eval.n_samples_per_prompt", 1, "an evaluation plays each of its episodes once"),
    unset("critic.model_name_or_path", keys="model.path"),
    unset("ds.param_dtype", keys="model.dtype"),
    unset("data.apply_chat_template data.input_template", keys="context.template"),
    unset("algo.advantage.no_std_norm", keys="algorithm.options"),
    unset("algo.advantage.gamma", keys="algorithm.gamma"),
    unset("algo.advantage.lambd", keys="algorithm.lam"),
    unset("actor.eps_clip", keys="algorithm.clip_low algorithm.clip_high"),
    unset("algo.kl.horizon algo.kl.target", keys="algorithm.kl_coef"),
    unset("actor.min_lr_ratio critic.min_lr_ratio", keys="algorithm.lr_schedule"),
    unset("rollout.vllm_generate_batch_size", keys="batch.episodes"),
    unset("rollout.max_new_tokens", keys="limits.max_tokens_per_turn"),
    unset("data.max_samples train.num_episodes", keys="train.steps"),
    unset("ckpt.disable_ds", keys="train.save_every"),
    unset(
        "ckpt.load_enable ckpt.output_dir ckpt.path",
        "checkpoints and model go into the run directory (--run, --resume)",
    ),
    unset(
        "algo.dynamic_filtering_enable algo.dynamic_filtering_range",
        "a step trains on every episode of its batch",
    ),
    unset(
        "data.image_key data.input_key data.max_images_per_prompt data.prompt_dataset "
        "data.prompt_probs data.prompt_split eval.dataset eval.split",
        _ROWS,
    ),
    unset(
        "reward.clip_range reward.model_name_or_path reward.normalize_enable reward.offload "
        "reward.overlong_buffer_len reward.overlong_penalty_factor reward.remote_url "
        "reward.stop_properly_penalty_coef",
        "rewards come from the environments",
    ),
    unset("train.agent_func_path", "the adapter's own executor plays the episodes"),
    unset(
        "actor.optim actor.muon.lr actor.muon.momentum actor.muon.nesterov actor.muon.no_nesterov "
        "actor.muon.ns_steps critic.optim critic.muon.lr critic.muon.momentum "
        "critic.muon.nesterov critic.muon.no_nesterov critic.muon.ns_steps",
        "algorithm.lr and algorithm.betas are AdamW's",
    ),
    unset(
        "ds.ring_attn_head_stride ds.ring_attn_size ds.tensor_parallel_size",
        "each GPU computes whole layers and whole sequences",
    ),
    unset("ds.load_in_4bit", "the engine gets the trained weights, which are not in 4 bits"),
    unset("data.disable_fast_tokenizer", "it would do nothing: OpenRLHF gets tokens"),
    unset("actor.freeze_visual_encoder", "it would do nothing: there are no images"),
    unset("use_ms", "models come from Hugging Face or from a directory, see model.path"),
    unset("help", "it is not a setting of a run"),
    unset("local_rank", "DeepSpeed's launcher sets it"),
)
