"""Translate a recipe to fields of ``trl.GRPOConfig``.

The tables state which field comes from which recipe key; `translate` and `NATIVE_OWNED` are made of
them. Translating a recipe without ``[trainer.trl]`` needs no TRL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gem_adapters.native_keys import (
    core_keys,
    native_table,
    refuse_keys,
    refuse_native,
    refuse_values,
)
from gem_adapters.rollout_correction import refuse_truncated_sampling
from gem_core.errors import RecipeError, did_you_mean
from gem_core.runs.recipe.files import merge
from gem_core.runs.recipe.recipe import Recipe, get_key, recipe_keys
from gem_trl.batching import batching, generations, updates_per_step
from gem_trl.vllm import allowed_on_cpu

if TYPE_CHECKING:
    from gem_trl._compat import GRPOConfig

APPLIED = frozenset({
    "model.lora.rank",
    "model.lora.alpha",
    "model.lora.targets",
    "hardware.sharding",
    "algorithm.estimator",
    "algorithm.options",
    "algorithm.gamma",
    "algorithm.lam",
    "algorithm.critic_lr",
    "algorithm.value_clip",
    "eval.every",
    "eval.inside_episodes",
    "train.log_episodes",
    "train.save_minutes",
})  # fmt: skip
"""Keys that the adapter itself carries out."""
REFUSED = {
    "context.history": "it trains one token sequence per episode; use history = 'append'.",
    "algorithm.kl_in": "it adds the KL term to the loss; use kl_in = 'loss'.",
    "batch.max_tokens_per_device": "its forward passes have equally many sequences, and its loss "
    "weights each pass alike; set batch.micro_batch to this number of tokens divided by "
    "limits.max_context_tokens.",
    "hardware.tensor_parallel": "its GRPOTrainer trains whole layers on each GPU; leave it 1.",
    "hardware.sequence_parallel": "its GRPOTrainer trains whole sequences on each GPU; leave it 1.",
    "hardware.offload": "the adapter does not train with DeepSpeed, and FSDP's offload was not "
    'tested; leave it "none", and lower trainer.trl.vllm_gpu_memory_utilization.',
}
"""Keys that cannot be honoured, and what to do instead."""
TRANSLATED = frozenset(recipe_keys()) - core_keys() - APPLIED - REFUSED.keys()
"""Keys that `translate` turns into native ones."""


def translate(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as fields of ``GRPOConfig``; ``[trainer.trl]`` is merged over them.

    The stop tokens and the run directory are added by `native_config`.

    Raises:
        RecipeError: a key cannot be honoured, or a native key is unknown or not free.
        MissingDependencyError: there are native keys, and no TRL to ask which ones it has.
    """
    refuse_keys(recipe, "TRL", REFUSED)
    _check_values(recipe)
    native = native_keys(recipe)
    changing = [key for key in native_table(recipe, "trl") if key.split(".")[0] in _SAMPLING]
    refuse_truncated_sampling(recipe, "trl", changing)
    copied = {field: get_key(recipe, key) for field, key in _COPIED.items()}
    computed = {field: compute(recipe) for field, (_, compute) in _COMPUTED.items()}
    config = {**copied, **computed, **_FIXED}
    return merge(merge(merge(NATIVE_DEFAULTS, config), _tables(recipe)), native)


def native_keys(recipe: Recipe) -> dict[str, Any]:
    """Return the table ``[trainer.trl]``.

    Raises:
        RecipeError: ``GRPOConfig`` has no such field, or something else decides it.
        MissingDependencyError: there are native keys, and TRL is not installed.
    """
    native = recipe.trainer.get("trl", {})
    refuse_native(recipe, "trl", NATIVE_OWNED)
    for key in native:
        fields = _grpo_fields()
        if key not in fields:
            hint = did_you_mean(key, fields - NATIVE_OWNED.keys())
            raise RecipeError(f"trainer.trl.{key}: not a field of trl.GRPOConfig.{hint}")
    return native


def native_config(recipe: Recipe, stop_ids: Sequence[int], folder: str | Path) -> GRPOConfig:
    """Return the ``GRPOConfig`` of a run.

    Args:
        recipe: the experiment.
        stop_ids: token ids that end a turn.
        folder: directory of TRL's checkpoints.

    Raises:
        RecipeError: as `translate`.
    """
    from gem_trl._compat import GRPOConfig

    config = translate(recipe)
    stop = "stop_token_ids" if config["use_vllm"] else "eos_token_id"
    config["generation_kwargs"] = {stop: list(stop_ids), **config["generation_kwargs"]}
    return GRPOConfig(output_dir=str(folder), **config)


# -- what cannot be honoured ----------------------------------------------------------------------


def _check_values(recipe: Recipe) -> None:
    """Refuse values (not whole keys) that TRL cannot honour."""
    engine = recipe.hardware.engine
    on_cpu = recipe.hardware.device == "cpu" and not allowed_on_cpu()
    checks = [
        (
            "hardware.engine hardware.device",
            engine == "sglang" or (on_cpu and engine == "vllm"),
            "use engine = 'hf', or 'vllm' on a GPU",
        ),
        (
            "algorithm.rollout_correction",
            recipe.algorithm.rollout_correction != "none"
            and recipe.hardware.device == "gpu"
            and engine == "hf",
            "transformers' generate reports no log-probabilities; use engine = 'vllm'",
        ),
        (
            "hardware.sharding",
            recipe.hardware.sharding not in ("default", "none"),
            "each GPU holds the whole model, gradients and optimizer states; use LoRA "
            "(model.lora.rank), or a trainer that shards, such as verl or OpenRLHF",
        ),
        *_engine_parallelism(recipe),
        ("batch.episodes", recipe.batch.episodes < 2, "it needs at least 2 episodes per step"),
    ]
    refuse_values(recipe, "TRL", checks)


def _engine_parallelism(recipe: Recipe) -> list[tuple[str, object, str]]:
    key = "hardware.engine_tensor_parallel"
    size = recipe.hardware.engine_tensor_parallel
    server = recipe.trainer.get("trl", {}).get("vllm_mode") == "server"
    return [
        (key, size > 1 and not _uses_vllm(recipe), "it is vLLM's; use engine = 'vllm'"),
        (key, size > 1 and server, "a server has it from `vllm serve --tensor-parallel-size`"),
        (
            f"{key} hardware.gpus_per_node",
            recipe.hardware.gpus_per_node % size,
            "the GPUs of a machine are divided into engines of that size",
        ),
    ]


def _grpo_fields() -> set[str]:
    from dataclasses import fields

    from gem_trl._compat import GRPOConfig

    return {field.name for field in fields(GRPOConfig)}


# -- values that are computed ---------------------------------------------------------------------


def _save_steps(recipe: Recipe) -> int:
    """Return the optimizer steps between checkpoints; without an interval, those of the run."""
    interval = recipe.train.save_every or max(recipe.train.steps, 1)
    return interval * updates_per_step(recipe)


def _loss_type(recipe: Recipe) -> str:
    names = {"token": "dapo", "sequence": "grpo", "constant": "dr_grpo"}
    return names[recipe.algorithm.loss_aggregation]


def _loss_divisor(recipe: Recipe) -> int:
    """Return the divisor of ``dr_grpo``; `_tables` limits what a turn may sample."""
    return recipe.algorithm.loss_constant or recipe.limits.max_tokens_per_turn


def _uses_vllm(recipe: Recipe) -> bool:
    """Return whether vLLM samples; on a CPU `_check_values` lets only tests ask for it."""
    default = "vllm" if recipe.hardware.device == "gpu" else "hf"
    engine = recipe.hardware.engine
    return (default if engine == "default" else engine) == "vllm"


def _model_length(recipe: Recipe) -> int | None:
    """Return the longest sequence in vLLM: the longest prompt, and a turn after it."""
    limits = recipe.limits
    if not _uses_vllm(recipe) or limits.max_context_tokens is None:
        return None
    return limits.max_context_tokens + limits.max_tokens_per_turn


def _tables(recipe: Recipe) -> dict[str, Any]:
    """Return the fields of ``GRPOConfig`` that are tables themselves."""
    cap = "max_tokens" if _uses_vllm(recipe) else "max_new_tokens"
    return {
        "generation_kwargs": {cap: recipe.limits.max_tokens_per_turn},
        "model_init_kwargs": {"revision": recipe.model.revision},
    }


_COPIED = {
    "num_iterations": "algorithm.epochs",
    "epsilon": "algorithm.clip_low",
    "epsilon_high": "algorithm.clip_high",
    "vllm_importance_sampling_clip_max": "algorithm.rollout_cap",
    "beta": "algorithm.kl_coef",
    "entropy_coef": "algorithm.entropy_coef",
    "learning_rate": "algorithm.lr",
    "weight_decay": "algorithm.weight_decay",
    "max_grad_norm": "algorithm.max_grad_norm",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "gradient_checkpointing": "model.gradient_checkpointing",
    "save_total_limit": "train.keep_checkpoints",
    "vllm_tensor_parallel_size": "hardware.engine_tensor_parallel",
    "seed": "seed",
}
"""Field -> the recipe key whose value it takes."""
_COMPUTED: dict[str, tuple[str, Callable[[Recipe], Any]]] = {
    "per_device_train_batch_size": ("batch.micro_batch", lambda r: batching(r).micro),
    "gradient_accumulation_steps": ("batch.micro_batch", lambda r: batching(r).accumulation),
    "steps_per_generation": ("algorithm.minibatches", lambda r: batching(r).generation),
    "num_generations": ("batch.group_size", generations),
    "max_steps": ("train.steps", lambda r: r.train.steps * updates_per_step(r)),
    "save_steps": ("train.save_every", _save_steps),
    "loss_type": ("algorithm.loss_aggregation", _loss_type),
    "max_completion_length": (
        "algorithm.loss_constant or limits.max_tokens_per_turn",
        _loss_divisor,
    ),
    "lr_scheduler_type": ("algorithm.lr_schedule", lambda r: r.algorithm.schedule_name),
    "warmup_steps": (
        "algorithm.warmup_steps",
        lambda r: r.algorithm.warmup_steps * updates_per_step(r),
    ),
    "adam_beta1": ("algorithm.betas", lambda r: r.algorithm.betas[0]),
    "adam_beta2": ("algorithm.betas", lambda r: r.algorithm.betas[1]),
    "top_k": ("sampling.top_k", lambda r: max(r.sampling.top_k, 0)),
    "use_vllm": ("hardware.engine", _uses_vllm),
    "vllm_importance_sampling_correction": (
        "algorithm.rollout_correction",
        lambda r: _uses_vllm(r) and r.algorithm.rollout_correction == "tis",
    ),
    "vllm_max_model_length": ("limits.max_context_tokens", _model_length),
    "use_cpu": ("hardware.device", lambda r: r.hardware.device == "cpu"),
    "bf16": ("model.dtype", lambda r: r.model.dtype == "bfloat16"),
}
"""Field -> the recipe key that decides it, and how."""
_REPLACED = {
    "activation_checkpointing": "model.gradient_checkpointing",
    "fp16": "model.dtype",
    "fsdp": "hardware.sharding",
    "fsdp_config": "hardware.sharding",
    "deepspeed": "hardware.sharding",
    "num_train_epochs": "train.steps",
    "auto_find_batch_size": "batch.micro_batch",
    "lr_scheduler_kwargs": "algorithm.lr_schedule",
    "use_adaptive_entropy": "algorithm.entropy_coef",
    "entropy_coef_delta": "algorithm.entropy_coef",
    "entropy_coef_max": "algorithm.entropy_coef",
    "entropy_coef_min": "algorithm.entropy_coef",
    "entropy_target": "algorithm.entropy_coef",
    "do_eval": "eval.every",
    "eval_on_start": "eval.every",
    "eval_steps": "eval.every",
    "eval_strategy": "eval.every",
    "generation_batch_size": "batch.episodes",
    "scale_rewards": "algorithm.estimator and algorithm.options",
    "reward_weights": "algorithm.estimator and algorithm.options",
    "multi_objective_aggregation": "algorithm.estimator and algorithm.options",
    "model_init_kwargs.revision": "model.revision",
    "generation_kwargs.max_tokens": "limits.max_tokens_per_turn",
    "generation_kwargs.max_new_tokens": "limits.max_tokens_per_turn",
    "generation_kwargs.temperature": "sampling.temperature",
    "generation_kwargs.do_sample": "sampling.temperature",
    "generation_kwargs.top_p": "sampling.top_p",
    "generation_kwargs.top_k": "sampling.top_k",
    "generation_kwargs.eos_token_id": "context.template",
    "generation_kwargs.stop_token_ids": "context.template",
    "generation_kwargs.stop": "context.template",
    "generation_kwargs.stop_strings": "context.template",
}
"""Field that would compete with a recipe key -> that key."""
_SAMPLING = ("min_p", "repetition_penalty", "generation_kwargs")
"""Free fields that change the probabilities of tokens."""
_FIXED: dict[str, Any] = {
    "vllm_importance_sampling_mode": "token_truncate",
    "vllm_importance_sampling_clip_min": None,
    "shuffle_dataset": False,
    "remove_unused_columns": False,
    "logging_strategy": "steps",
    "logging_steps": 1,
    "logging_first_step": False,
    "logging_nan_inf_filter": False,
    "save_strategy": "steps",
    "save_only_model": False,
}
"""Fields that must have this value, see `_REASONS`."""
_REASONS = {
    "vllm_importance_sampling_mode": "algorithm.rollout_correction is per token",
    "vllm_importance_sampling_clip_min": "algorithm.rollout_cap is the only bound",
    "output_dir": "checkpoints are in the run directory: set --run instead",
    "resume_from_checkpoint": "use --resume instead",
    "shuffle_dataset": "each step plays its tasks in order",
    "ignore_data_skip": "each step plays its tasks in order, also after a resume",
    "remove_unused_columns": "the adapter's data rows have a column of their own",
    "sync_ref_model": "the reference of algorithm.kl_coef is the initial model",
    "ref_model_mixup_alpha": "the reference of algorithm.kl_coef is the initial model",
    "ref_model_sync_steps": "the reference of algorithm.kl_coef is the initial model",
    "logging_steps": "metrics.jsonl has one line per training step, of all its updates",
    "logging_strategy": "metrics.jsonl has one line per training step",
    "logging_first_step": "metrics.jsonl has one line per training step",
    "logging_nan_inf_filter": "it would replace a loss that is not finite by the last finite one",
    "save_strategy": "set train.save_every instead",
    "save_only_model": "a resumed run needs the optimizer's state",
    "generation_kwargs.n": "a request is for one completion",
    "generation_kwargs.num_return_sequences": "a request is for one completion",
}
"""Fields that no recipe key decides, and which are not free either -> why."""
NATIVE_OWNED: dict[str, str] = {
    **{field: f"set {key} instead" for field, key in _COPIED.items()},
    **{field: f"set {key} instead" for field, (key, _) in _COMPUTED.items()},
    **{field: f"set {key} instead" for field, key in _REPLACED.items()},
    **_REASONS,
}
"""Native key -> what decides it: refused in ``[trainer.trl]``."""
NATIVE_DEFAULTS: dict[str, Any] = {
    "vllm_mode": "colocate",
    # The KL term by its formula, as in the other trainers, not times the ratio of the policies.
    "use_bias_correction_kl": False,
    # Weights stay float32 under autocast: at lr 1e-6 bfloat16 weights would not move.
    "model_init_kwargs": {"dtype": "float32"},
    "dataloader_pin_memory": False,  # data rows hold a number each, no tensors
    "report_to": [],
    "disable_tqdm": True,
}
"""Native keys in whose place TRL's own default does not fit; ``[trainer.trl]`` may change them."""
