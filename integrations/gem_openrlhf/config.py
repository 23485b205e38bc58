"""Recipe -> OpenRLHF's dotted command-line flags.

The tables say which flag comes from which recipe key; `flags` and `NATIVE_OWNED` are made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gem_adapters.native_keys import core_keys, refuse_keys, refuse_native
from gem_adapters.rollout_correction import refuse_truncated_sampling
from gem_core.errors import RecipeError, did_you_mean
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import Recipe, get_key, recipe_keys
from gem_openrlhf import values
from gem_openrlhf.checks import check_native, check_values
from gem_openrlhf.command_line import known_flags


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


APPLIED = _keys(
    "algorithm.estimator algorithm.options algorithm.gamma algorithm.lam sampling.top_k "
    "eval.inside_episodes train.steps train.log_episodes train.save_minutes model.dtype "
    "hardware.engine"
)
"""Applied by the adapter itself: experience maker, executor, dataset rows, CPU harness."""
REFUSED = {
    "algorithm.loss_constant": "its loss is a mean; use loss_aggregation 'token' or 'sequence'.",
    "context.history": "it trains one token sequence per episode; use history = 'append'.",
    "hardware.tensor_parallel": (
        "DeepSpeed's takes bfloat16 only, so that its gradient cannot be compared with one "
        "process's to more than 2e-4; use more GPUs with hardware.sharding = 'full'."
    ),
    "hardware.sequence_parallel": (
        "its ring attention runs on CUDA kernels only and was never compared with one process; "
        "use more GPUs with hardware.sharding = 'full'."
    ),
}
"""Keys that cannot be honoured, and what to do instead."""
TRANSLATED = frozenset(recipe_keys()) - core_keys() - APPLIED - REFUSED.keys()
"""Keys that `flags` turns into native ones."""


def translate(recipe: Recipe) -> list[str]:
    """Translate to arguments of ``openrlhf.cli.train_ppo_ray``, without the paths of a run.

    Raises:
        RecipeError: a key cannot be honoured, or a native flag is unknown or not free.
        MissingDependencyError: there are native flags, and no OpenRLHF to ask which ones it has.
    """
    return render(flags(recipe))


def flags(recipe: Recipe) -> dict[str, Any]:
    """Return OpenRLHF's flags by dotted name; raises as `translate`."""
    refuse_keys(recipe, "openrlhf", REFUSED)
    native = native_flags(recipe)
    check_values(recipe)
    refuse_truncated_sampling(recipe, "openrlhf")
    check_native(recipe, native)
    copied = {flag: get_key(recipe, key) for flag, key in _COPIED.items()}
    computed = {flag: compute(recipe) for flag, (_, compute) in _COMPUTED.items()}
    fixed = {flag: value for flag, (value, _) in _FIXED.items()}
    return {**copied, **computed, **fixed, **_default_flags(recipe), **native}


def native_flags(recipe: Recipe) -> dict[str, Any]:
    """Return ``[trainer.openrlhf]`` by dotted name.

    Raises:
        RecipeError: OpenRLHF has no such flag, or something else decides it.
        MissingDependencyError: there are flags, and OpenRLHF is not installed.
    """
    refuse_native(recipe, "openrlhf", NATIVE_OWNED)
    native = flatten(recipe.trainer.get("openrlhf", {}))
    if not native:
        return {}
    known = known_flags()
    for name in native:
        if name not in known:
            hint = did_you_mean(name, known)
            raise RecipeError(f"trainer.openrlhf.{name}: OpenRLHF has no such flag.{hint}")
    return native


def render(native: Mapping[str, Any]) -> list[str]:
    """Write flags as arguments: True is a bare flag, False and None are left out.

    Raises:
        RecipeError: a value would be read as a flag.
    """
    arguments: list[str] = []
    for name, value in native.items():
        if value is None or value is False:
            continue
        arguments.append(f"--{name}")
        if value is True:
            continue
        items = value if isinstance(value, (list, tuple)) else [value]
        texts = [str(item) for item in items]
        for text in texts:
            if text.startswith("--"):
                raise RecipeError(f"trainer.openrlhf.{name}: {text!r} would be read as a flag.")
        arguments += texts
    return arguments


# -- what the recipe and the adapter decide -------------------------------------------------------


_COPIED = {
    "actor.adam.betas": "algorithm.betas",
    "actor.adam.lr": "algorithm.lr",
    "actor.adam.weight_decay": "algorithm.weight_decay",
    "actor.entropy_coef": "algorithm.entropy_coef",  # also at 0: then it is only logged
    "actor.gradient_checkpointing_enable": "model.gradient_checkpointing",
    "actor.max_norm": "algorithm.max_grad_norm",
    "actor.model_name_or_path": "model.path",
    "algo.kl.init_coef": "algorithm.kl_coef",
    "ckpt.max_num": "train.keep_checkpoints",
    "critic.adam.betas": "algorithm.betas",
    "critic.adam.weight_decay": "algorithm.weight_decay",
    "critic.max_norm": "algorithm.max_grad_norm",
    "critic.value_clip": "algorithm.value_clip",
    "data.max_len": "limits.max_context_tokens",
    "eval.temperature": "eval.temperature",
    "rollout.n_samples_per_prompt": "batch.group_size",
    "rollout.temperature": "sampling.temperature",
    "rollout.top_p": "sampling.top_p",
    "train.max_epochs": "algorithm.epochs",
    "ds.lora.rank": "model.lora.rank",
    "rollout.max_tokens_per_gpu": "batch.max_tokens_per_device",
    "train.max_tokens_per_gpu": "batch.max_tokens_per_device",
    "train.seed": "seed",
    "vllm.tensor_parallel_size": "hardware.engine_tensor_parallel",
}
"""Flag -> the recipe key whose value it gets."""
_COMPUTED: dict[str, tuple[str, Callable[[Recipe], Any]]] = {
    "actor.eps_clip_low_high": ("algorithm.clip_low and algorithm.clip_high", values.clip),
    "actor.loss_agg_mode": ("algorithm.loss_aggregation", values.loss_aggregation),
    "actor.lr_scheduler": ("algorithm.lr_schedule", values.schedule),
    "actor.lr_warmup_ratio": ("algorithm.warmup_steps", values.warmup_ratio),
    "algo.advantage.estimator": ("algorithm.estimator", values.estimator),
    "algo.advantage.is_correction_level": (
        "algorithm.rollout_correction",
        lambda recipe: "token" if recipe.algorithm.rollout_correction == "tis" else "off",
    ),
    "algo.advantage.is_correction_threshold": (
        "algorithm.rollout_cap",
        lambda recipe: [0.0, recipe.algorithm.rollout_cap],
    ),
    "algo.kl.use_loss": ("algorithm.kl_in", lambda recipe: recipe.algorithm.kl_in == "loss"),
    "ckpt.save_steps": ("train.save_every", values.save_steps),
    "critic.adam.lr": ("algorithm.critic_lr", values.critic_lr),
    "critic.lr_scheduler": ("algorithm.lr_schedule", values.schedule),
    "critic.lr_warmup_ratio": ("algorithm.warmup_steps", values.warmup_ratio),
    "ds.adam_offload": ("hardware.offload", lambda recipe: recipe.hardware.offload == "optimizer"),
    "ds.lora.alpha": ("model.lora.alpha", values.lora_alpha),
    "ds.lora.target_modules": ("model.lora.targets", values.lora_targets),
    "ds.zero_stage": ("hardware.sharding", values.zero_stage),
    "eval.steps": ("eval.every", values.eval_steps),
    "rollout.batch_size": ("batch.episodes", lambda recipe: recipe.groups_per_step),
    "rollout.micro_batch_size": ("batch.micro_batch", values.micro_batch),
    "train.batch_size": ("algorithm.minibatches", values.minibatch),
    "train.dynamic_batch_enable": ("batch.max_tokens_per_device", values.is_dynamic),
    "train.micro_batch_size": ("batch.micro_batch", values.micro_batch),
    **{f"{role}.num_nodes": ("hardware.nodes", values.nodes) for role in values.ROLES},
    **{
        f"{role}.num_gpus_per_node": ("hardware.gpus_per_node", values.train_gpus)
        for role in values.ROLES
    },
}
"""Flag -> the recipe key that decides it, and how."""
_ROWS = "prompts come from the environments, and the adapter writes the rows for them"
_CORRECTION = "algorithm.rollout_correction is truncated importance sampling"
_FIXED: dict[str, tuple[Any, str]] = {
    "algo.advantage.is_correction_gating": ("ratio", _CORRECTION),
    "algo.advantage.is_correction_mode": ("clip", _CORRECTION),
    "ckpt.best_metric_key": ("none", "the newest checkpoints are kept, none as the best"),
    "data.label_key": ("label", _ROWS),
    "eval.n_samples_per_prompt": (1, "an evaluation plays each of its episodes once"),
}
"""Flag -> the value that the adapter needs, and why."""
_REPLACED = {
    "actor.eps_clip": "algorithm.clip_low and algorithm.clip_high",
    "algo.advantage.gamma": "algorithm.gamma",
    "algo.advantage.lambd": "algorithm.lam",
    "algo.advantage.no_std_norm": "algorithm.options",
    "algo.kl.horizon": "algorithm.kl_coef",
    "algo.kl.target": "algorithm.kl_coef",
    "actor.min_lr_ratio": "algorithm.lr_schedule",
    "critic.min_lr_ratio": "algorithm.lr_schedule",
    "ckpt.disable_ds": "train.save_every",
    "critic.model_name_or_path": "model.path",
    "data.apply_chat_template": "context.template",
    "data.input_template": "context.template",
    "data.max_samples": "train.steps",
    "ds.param_dtype": "model.dtype",
    "rollout.max_new_tokens": "limits.max_tokens_per_turn",
    "rollout.vllm_generate_batch_size": "batch.episodes",
    "train.num_episodes": "train.steps",
}
"""Flag that is not set, because the adapter does its work -> the recipe key for that work."""
_REASONS = {
    "checkpoints and model go into the run directory (--run, --resume)": (
        "ckpt.load_enable ckpt.output_dir ckpt.path"
    ),
    "a step trains on every episode of its batch": (
        "algo.dynamic_filtering_enable algo.dynamic_filtering_range"
    ),
    _ROWS: (
        "data.image_key data.input_key data.max_images_per_prompt data.prompt_dataset "
        "data.prompt_probs data.prompt_split eval.dataset eval.split"
    ),
    "rewards come from the environments": (
        "reward.clip_range reward.model_name_or_path reward.normalize_enable reward.offload "
        "reward.overlong_buffer_len reward.overlong_penalty_factor reward.remote_url "
        "reward.stop_properly_penalty_coef"
    ),
    "the adapter's own executor plays the episodes": "train.agent_func_path",
    "algorithm.lr and algorithm.betas are AdamW's": (
        "actor.optim actor.muon.lr actor.muon.momentum actor.muon.nesterov actor.muon.no_nesterov "
        "actor.muon.ns_steps critic.optim critic.muon.lr critic.muon.momentum "
        "critic.muon.nesterov critic.muon.no_nesterov critic.muon.ns_steps"
    ),
    "each GPU computes whole layers and whole sequences": (
        "ds.ring_attn_head_stride ds.ring_attn_size ds.tensor_parallel_size"
    ),
    "the engine gets the trained weights, which are not in 4 bits": "ds.load_in_4bit",
    "it would do nothing: OpenRLHF gets tokens": "data.disable_fast_tokenizer",
    "it would do nothing: there are no images": "actor.freeze_visual_encoder",
    "models come from Hugging Face or from a directory, see model.path": "use_ms",
    "it is not a setting of a run": "help",
    "DeepSpeed's launcher sets it": "local_rank",
}
"""Reason why flags cannot be set -> the flags."""
NATIVE_OWNED: dict[str, str] = {
    **{flag: f"set {key} instead" for flag, key in _COPIED.items()},
    **{flag: f"set {key} instead" for flag, (key, _) in _COMPUTED.items()},
    **{flag: f"set {key} instead" for flag, key in _REPLACED.items()},
    **{flag: reason for flag, (_, reason) in _FIXED.items()},
    **{flag: reason for reason, names in _REASONS.items() for flag in names.split()},
}
"""Native flag -> what decides it; refused in ``[trainer.openrlhf]``."""


# -- what a recipe may override -------------------------------------------------------------------


def _default_flags(recipe: Recipe) -> dict[str, Any]:
    """Return flags that suit better than OpenRLHF's own defaults, see `NATIVE_DEFAULTS`."""
    return {
        **values.layout_flags(recipe),
        "algo.kl.estimator": "k3" if recipe.algorithm.kl_in == "loss" else "k1",
    }


NATIVE_DEFAULTS = _keys(
    "algo.kl.estimator ds.attn_implementation ds.enable_sleep train.colocate_all "
    "vllm.enable_prefix_caching vllm.enable_sleep vllm.enforce_eager vllm.gpu_memory_utilization "
    "vllm.num_engines vllm.sync_backend"
)
"""Native flags that the adapter sets, and that ``[trainer.openrlhf]`` may set otherwise."""
