"""The key table of TRL: recipe keys and the fields of its ``GRPOConfig``."""

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
from gem_adapters.recipe_values import first_beta, schedule, second_beta
from gem_trl import batching, values

_ESTIMATE = "algorithm.estimator algorithm.options"
_ONE_LINE = "metrics.jsonl has one line per training step"
_REFERENCE = "the reference of algorithm.kl_coef is the initial model"

TABLE = KeyTable(
    copied("seed", "seed"),
    copied("model.gradient_checkpointing", "gradient_checkpointing"),
    copied("model.revision", "model_init_kwargs.revision"),
    copied("algorithm.clip_low", "epsilon"),
    copied("algorithm.clip_high", "epsilon_high"),
    copied("algorithm.kl_coef", "beta"),
    copied("algorithm.entropy_coef", "entropy_coef"),
    copied("algorithm.rollout_cap", "vllm_importance_sampling_clip_max"),
    copied("algorithm.epochs", "num_iterations"),
    copied("algorithm.lr", "learning_rate"),
    copied("algorithm.weight_decay", "weight_decay"),
    copied("algorithm.max_grad_norm", "max_grad_norm"),
    copied("sampling.temperature", "temperature"),
    copied("sampling.top_p", "top_p"),
    copied("train.keep_checkpoints", "save_total_limit"),
    copied("hardware.engine_tensor_parallel", "vllm_tensor_parallel_size"),
    computed("model.dtype", "bf16", lambda r: r.model.dtype == "bfloat16", "whether bfloat16"),
    computed(
        "algorithm.rollout_correction",
        "vllm_importance_sampling_correction",
        values.corrects_rollout,
    ),
    computed("algorithm.minibatches", "steps_per_generation", values.passes_per_batch),
    computed("algorithm.loss_aggregation", "loss_type", values.loss_type),
    computed(
        "algorithm.loss_constant limits.max_tokens_per_turn",
        "max_completion_length",
        values.loss_divisor,
    ),
    computed(
        "algorithm.lr_schedule",
        "lr_scheduler_type",
        schedule,
    ),
    computed("algorithm.warmup_steps", "warmup_steps", values.warmup_steps),
    computed("algorithm.betas", "adam_beta1", first_beta),
    computed("algorithm.betas", "adam_beta2", second_beta),
    computed("batch.group_size", "num_generations", batching.generations),
    computed("batch.micro_batch", "per_device_train_batch_size", values.micro_batch),
    computed(
        "batch.episodes batch.micro_batch", "gradient_accumulation_steps", values.accumulation
    ),
    computed("sampling.top_k", "top_k", lambda r: max(r.sampling.top_k, 0), "0 in place of -1"),
    computed(
        "limits.max_tokens_per_turn", "generation_kwargs.max_tokens", values.turn_tokens_of_vllm
    ),
    computed(
        "limits.max_tokens_per_turn",
        "generation_kwargs.max_new_tokens",
        values.turn_tokens_of_transformers,
    ),
    computed("limits.max_context_tokens", "vllm_max_model_length", values.model_length),
    computed("train.steps", "max_steps", values.max_steps),
    computed("train.save_every", "save_steps", values.save_steps),
    computed("hardware.device", "use_cpu", lambda r: r.hardware.device == "cpu", "whether a CPU"),
    computed(
        "hardware.device",
        "model_init_kwargs.device_map",
        values.device_map,
        "the whole model on the process's first GPU",
    ),
    computed("hardware.engine", "use_vllm", values.uses_vllm),
    default("vllm_mode", "colocate", "engine and training take turns on the same GPUs"),
    default(
        "vllm_enable_sleep_mode",
        values.engine_sleeps,
        "vLLM inside the training processes gives its memory back while the model is trained",
        keys="hardware.device hardware.engine",
    ),
    default(
        "use_bias_correction_kl",
        False,
        "the KL term by its formula, as in the other trainers, not times the ratio of the policies",
    ),
    default(
        "model_init_kwargs.dtype",
        "float32",
        "weights stay float32 under autocast: at lr 1e-6 bfloat16 weights would not move",
    ),
    default("dataloader_pin_memory", False, "data rows hold a number each, no tensors"),
    default("report_to", [], "trackers are in the recipe's `[track]`"),
    default("disable_tqdm", True, "metrics.jsonl has the progress"),
    applied(
        f"{_ESTIMATE} algorithm.gamma algorithm.lam",
        "advantages are gem-core's, in place of TRL's (`advantages.py`)",
    ),
    applied("algorithm.critic_lr algorithm.value_clip", "the adapter's critic (`critic.py`)"),
    applied("model.lora.rank model.lora.alpha model.lora.targets", "the `peft_config` of TRL"),
    applied("eval.every eval.inside_episodes", "the adapter plays the evaluation"),
    applied("train.log_episodes", "the adapter writes the run directory"),
    applied("train.save_minutes", "the adapter asks TRL for a checkpoint"),
    applied(
        "hardware.nodes hardware.gpus_per_node",
        "the launcher starts a process for each GPU (`nodes.py`)",
    ),
    applied(
        "sampling.support",
        "the adapter restricts the logits to the tokens that could be drawn (`scoring.py`)",
    ),
    applied(
        "sampling.staleness sampling.refresh_turns",
        "the engine of a CPU keeps old weights (`gem_adapters.versions`)",
    ),
    applied("hardware.sharding", "each GPU holds the whole model; other values are refused"),
    refused("algorithm.kl_in", "it adds the KL term to the loss; use kl_in = 'loss'."),
    refused(
        "batch.max_tokens_per_device",
        "its forward passes have equally many sequences, and its loss weights each pass alike; "
        "set batch.micro_batch to this number of tokens divided by limits.max_context_tokens.",
    ),
    refused(
        "hardware.tensor_parallel", "its GRPOTrainer trains whole layers on each GPU; leave it 1."
    ),
    refused(
        "hardware.sequence_parallel",
        "its GRPOTrainer trains whole sequences on each GPU; leave it 1.",
    ),
    refused(
        "hardware.offload",
        "the adapter does not train with DeepSpeed, and FSDP's offload was not tested; leave it "
        '"none", and lower trainer.trl.vllm_gpu_memory_utilization.',
    ),
    fixed(
        "vllm_importance_sampling_mode",
        "token_truncate",
        "algorithm.rollout_correction is per token",
    ),
    fixed("vllm_importance_sampling_clip_min", None, "algorithm.rollout_cap is the only bound"),
    fixed("shuffle_dataset", False, "each step plays its tasks in order"),
    fixed("remove_unused_columns", False, "the adapter's data rows have a column of their own"),
    fixed("logging_strategy", "steps", _ONE_LINE),
    fixed("logging_steps", 1, f"{_ONE_LINE}, of all its updates"),
    fixed("logging_first_step", False, _ONE_LINE),
    fixed(
        "logging_nan_inf_filter",
        False,
        "it would replace a loss that is not finite by the last finite one",
    ),
    fixed("save_strategy", "steps", "set train.save_every instead"),
    fixed("save_only_model", False, "a resumed run needs the optimizer's state"),
    unset("activation_checkpointing", keys="model.gradient_checkpointing"),
    unset("fp16", keys="model.dtype"),
    unset(
        "generation_kwargs.eos_token_id generation_kwargs.stop_token_ids generation_kwargs.stop "
        "generation_kwargs.stop_strings",
        keys="context.template",
    ),
    unset("scale_rewards reward_weights multi_objective_aggregation", keys=_ESTIMATE),
    unset(
        "use_adaptive_entropy entropy_coef_delta entropy_coef_max entropy_coef_min entropy_target",
        keys="algorithm.entropy_coef",
    ),
    unset("lr_scheduler_kwargs", keys="algorithm.lr_schedule"),
    unset("generation_batch_size", keys="batch.episodes"),
    unset("auto_find_batch_size", keys="batch.micro_batch"),
    unset("generation_kwargs.temperature generation_kwargs.do_sample", keys="sampling.temperature"),
    unset("generation_kwargs.top_p", keys="sampling.top_p"),
    unset("generation_kwargs.top_k", keys="sampling.top_k"),
    unset("do_eval eval_on_start eval_steps eval_strategy", keys="eval.every"),
    unset("num_train_epochs", keys="train.steps"),
    unset("fsdp fsdp_config deepspeed", keys="hardware.sharding"),
    unset("output_dir", "checkpoints are in the run directory: set --run instead"),
    unset("resume_from_checkpoint", "use --resume instead"),
    unset("ignore_data_skip", "each step plays its tasks in order, also after a resume"),
    unset("sync_ref_model ref_model_mixup_alpha ref_model_sync_steps", _REFERENCE),
    unset(
        "generation_kwargs.n generation_kwargs.num_return_sequences",
        "a request is for one completion",
    ),
)
