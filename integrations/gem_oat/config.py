"""Recipe -> Oat's command line, and the command line as ``PPOArgs``.

The tables say which argument comes from which recipe key; `translate` and `NATIVE_OWNED` are made
of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gem_adapters.estimate import needs_critic
from gem_adapters.native_keys import core_keys, refuse_keys, refuse_native, refuse_values
from gem_adapters.rollout_correction import refuse_truncated_sampling
from gem_core.errors import RecipeError, unknown
from gem_core.runs.recipe.recipe import Recipe, get_key, recipe_keys
from gem_oat import values

APPLIED = frozenset({
    "algorithm.estimator",
    "algorithm.options",
    "algorithm.gamma",
    "algorithm.lam",
    "algorithm.loss_aggregation",
    "algorithm.loss_constant",
    "algorithm.lr_schedule",
    "batch.episodes",
    "batch.group_size",
    "batch.max_tokens_per_device",
    "model.lora.targets",
    "eval.every",
    "eval.inside_episodes",
    "train.steps",
    "train.save_every",
    "train.save_minutes",
    "train.log_episodes",
    "hardware.engine",
})  # fmt: skip
"""Keys that the adapter's actor, learner and launcher carry out; Oat's command line has none."""

REFUSED = {
    "algorithm.entropy_coef": "Oat computes the entropy without a gradient; set it to 0.",
    "hardware.nodes": "a command on a second machine would find the run directory in use; use one "
    "machine with more GPUs, or TRL, verl or OpenRLHF.",
    "hardware.engine_tensor_parallel": "not carried over to Oat yet; leave it 1.",
    "hardware.tensor_parallel": "Oat's GPUs compute whole layers; leave it 1.",
    "hardware.sequence_parallel": "Oat's GPUs compute whole sequences; leave it 1.",
    "hardware.sharding": "not carried over to Oat yet; set zero_stage in [trainer.oat].",
    "hardware.offload": "not carried over to Oat yet; set adam_offload in [trainer.oat].",
}
"""Keys that cannot be honoured, and what to do instead."""

TRANSLATED = frozenset(recipe_keys()) - core_keys() - APPLIED - REFUSED.keys()
"""Keys that become arguments of Oat."""

FUSED = (
    "Oat's fused LM head gives the transformer body no gradient with 2 or more rows per forward "
    "pass; set batch.micro_batch = 1 or leave use_fused_lm_head off"
)
"""Why the fused head is refused, by `translate` and again before each update."""


def translate(recipe: Recipe) -> list[str]:
    """Oat's command line for ``recipe``; needs neither Oat nor a GPU.

    Raises:
        RecipeError: Oat cannot honour a key, or a native key is not free.
    """
    refuse_keys(recipe, "Oat", REFUSED)
    refuse_native(recipe, "oat", NATIVE_OWNED)
    _check_values(recipe)
    refuse_truncated_sampling(recipe, "oat")
    defaults = {name: compute(recipe) for name, compute in NATIVE_DEFAULTS.items()}
    copied = {name: get_key(recipe, key) for name, key in _COPIED.items()}
    computed = {name: compute(recipe) for name, (_, compute) in _COMPUTED.items()}
    fixed = {name: value for name, (value, _) in _FIXED.items()}
    native = recipe.trainer.get("oat", {})
    words: list[str] = []
    for name, value in {**defaults, **native, **copied, **computed, **fixed}.items():
        words += _argument(name, value)
    return words


def arguments(recipe: Recipe) -> Any:
    """``PPOArgs`` by Oat's own parser and validation; imports Oat.

    Raises:
        RecipeError: as `translate`, or ``[trainer.oat]`` has a value that Oat does not take.
        UnknownNameError: ``[trainer.oat]`` has a key that is no argument of Oat.
    """
    import tyro
    from oat.algorithms.ppo import PPOArgs
    from oat.args import default_args_validation

    words = translate(recipe)
    known = PPOArgs.__dataclass_fields__
    for name in recipe.trainer.get("oat", {}):
        if name not in known:
            raise unknown("argument of Oat in [trainer.oat]", name, known)
    try:
        args = tyro.cli(PPOArgs, args=words)
    except SystemExit:
        raise RecipeError(
            "trainer.oat: Oat's parser refuses a value; its message above names the argument."
        ) from None
    # Oat hands the name through to transformers; only its command line offers fewer.
    args.lr_scheduler = recipe.algorithm.schedule_name
    # Its parser takes one name for a list of names.
    args.target_modules = list(recipe.model.lora.targets) or "all-linear"
    return default_args_validation(args)


def _argument(name: str, value: Any) -> list[str]:
    """One argument as words of a command line; true and false are flags."""
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    items = value if isinstance(value, (list, tuple)) else [value]
    return [f"--{name}", *map(str, items)]


def _check_values(recipe: Recipe) -> None:
    """Refuse values, or pairs of them, that Oat cannot honour."""
    algorithm = recipe.algorithm
    hardware = recipe.hardware
    native = recipe.trainer.get("oat", {})
    gpu = hardware.device == "gpu"
    real_vllm = "vllm" in values.real_parts()
    most = recipe.batch.max_tokens_per_device
    fused = native.get("use_fused_lm_head") and recipe.batch.micro_batch != 1
    checks = [
        (
            "algorithm.clip_low algorithm.clip_high",
            algorithm.clip_low != algorithm.clip_high,
            "Oat has one clip range; make them equal",
        ),
        ("train.steps", not recipe.train.steps, "there is nothing to train"),
        (
            "hardware.engine hardware.device",
            hardware.engine not in ("default", "vllm" if gpu or real_vllm else "hf"),
            "Oat samples with vllm on a GPU, on a CPU with hf",
        ),
        (
            "hardware.device hardware.gpus_per_node",
            hardware.gpus > 1 and not gpu,
            "on a CPU there is one",
        ),
        (
            "batch.episodes batch.group_size hardware.gpus_per_node",
            recipe.groups_per_step % hardware.gpus,
            f"groups stay whole: episodes / group_size must be a multiple of {hardware.gpus} GPUs",
        ),
        ("batch.micro_batch", fused, FUSED),
        (
            "batch.max_tokens_per_device limits.max_context_tokens",
            most and most < (recipe.limits.max_context_tokens or 0),
            "the longest sequence must fit into one forward pass",
        ),
    ]
    refuse_values(recipe, "Oat", [*checks, *_lora_checks(recipe)])


def _lora_checks(recipe: Recipe) -> list[tuple[str, object, str]]:
    """What Oat's adapters cannot do."""
    rank = recipe.model.lora.rank
    return [
        ("model.lora.alpha", rank and recipe.model.lora.alpha % 1, "Oat takes whole numbers"),
        (
            "model.lora.rank algorithm.estimator",
            rank and needs_critic(recipe),
            "the critic's value head would stay at zero, because only adapters are trained",
        ),
        (
            "model.lora.rank",
            rank and recipe.trainer.get("oat", {}).get("zero_stage") == 3,
            "merged weights are not gathered from ZeRO 3; leave zero_stage out",
        ),
    ]


# -- what the recipe and the adapter decide -------------------------------------------------------

_COPIED = {
    "cliprange": "algorithm.clip_high",
    "cliprange_value": "algorithm.value_clip",
    "generate_max_length": "limits.max_tokens_per_turn",
    "gpus": "hardware.gpus_per_node",
    "gradient_checkpointing": "model.gradient_checkpointing",
    "l2": "algorithm.weight_decay",
    "learning_rate": "algorithm.lr",
    "lora_rank": "model.lora.rank",
    "max_model_len": "limits.max_context_tokens",
    "max_norm": "algorithm.max_grad_norm",
    "num_ppo_epochs": "algorithm.epochs",
    "seed": "seed",
    "temperature": "sampling.temperature",
    "top_k": "sampling.top_k",
    "top_p": "sampling.top_p",
}
"""Argument -> the recipe key whose value it gets."""
_COMPUTED: dict[str, tuple[str, Callable[[Recipe], Any]]] = {
    "adam_beta_1": ("algorithm.betas", lambda recipe: recipe.algorithm.betas[0]),
    "adam_beta_2": ("algorithm.betas", lambda recipe: recipe.algorithm.betas[1]),
    "beta": ("algorithm.kl_coef and algorithm.kl_in", values.kl_in_loss),
    "bf16": ("model.dtype", values.is_bfloat16),
    "critic_learning_rate": ("algorithm.critic_lr", values.critic_lr),
    "critic_type": ("algorithm.estimator", values.critic_type),
    "kl_penalty_coef": ("algorithm.kl_coef and algorithm.kl_in", values.kl_in_reward),
    "lora_alpha": ("model.lora.alpha", lambda recipe: int(recipe.model.lora.alpha)),
    "lr_warmup_ratio": ("algorithm.warmup_steps", values.warmup_ratio),
    "max_epochs": ("algorithm.epochs and algorithm.minibatches", values.passes_per_item),
    "max_save_num": ("train.keep_checkpoints", values.checkpoints_kept),
    "rollout_batch_size": ("batch.episodes", lambda recipe: recipe.hardware.gpus),
    "tis_c": ("algorithm.rollout_correction and algorithm.rollout_cap", values.correction_cap),
    "train_batch_size": ("batch.micro_batch and algorithm.minibatches", values.train_rows),
    "train_batch_size_per_device": ("batch.micro_batch", values.micro_batch),
}
"""Argument -> the recipe key that decides it, and how."""
_OWN_EVAL = "the adapter plays the evaluation: set eval.every, eval.inside_episodes"
_OWN_STEPS = "every training step collects one batch: set train.steps, batch.episodes"
_FIXED: dict[str, tuple[Any, str]] = {
    "algo": ("PPO", "the adapter is made for Oat's PPO: set algorithm.estimator"),
    "collocate": (True, "every GPU has one learner and one actor: set hardware.gpus_per_node"),
    "debug": (True, _OWN_EVAL),
    "eval_steps": (-1, _OWN_EVAL),
    "fp16": (False, "set model.dtype instead"),
    "load_in_4bit": (False, "the engine gets the weights that are trained, in model.dtype"),
    "lora_dropout": (0, "a policy without dropout is sampled, and must be the one that is trained"),
    "logging_steps": (10**9, "the adapter writes every step to metrics.jsonl"),
    "max_train": (10**15, _OWN_STEPS),
    "num_groups": (1, "the adapter starts the processes of one machine"),
    "num_samples": (1, "a row is a part of an episode: set batch.group_size"),
    "oracle": ("", "rewards come from the environments"),
    "pi_buffer_maxlen_per_device": (1, "the rows of a step are the buffer"),
    "prompt_data": ("", "prompts come from the environments"),
    "rollout_batch_size_per_device": (1, _OWN_STEPS),
    "save_steps": (-1, "set train.save_every instead"),
}
"""Argument -> the value that the adapter needs, and why."""
_REPLACED = {
    "apply_chat_template": "context.template",
    "critic_pretrain": "model.path",
    "eval_generate_max_length": "limits.max_tokens_per_turn",
    "eval_temperature": "eval.temperature",
    "gamma": "algorithm.gamma",
    "ignore_no_eos": "limits.cut_action",
    "lam": "algorithm.lam",
    "lr_scheduler": "algorithm.lr_schedule",
    "max_eval": "eval.inside_episodes",
    "pretrain": "model.path",
    "ref_pretrain": "model.path",
    "save_ckpt": "train.save_every",
    "save_from": "train.save_every",
    "target_modules": "model.lora.targets",
    "tokenizer": "model.path",
}
"""Argument that is set elsewhere, or that has no effect here -> the recipe key for that work."""
_REASONS = {
    _OWN_EVAL: (
        "eval_batch_size eval_data eval_n eval_query_interval eval_split eval_top_k eval_top_p"
    ),
    _OWN_STEPS: "max_queries max_sgd_steps num_prompt_epoch",
    "learner and actor take turns": "asynchronous",
    "the rows of a step are the buffer": "buffer_clear_every dump_all_buffer",
    "the schedule ends with train.steps": "critic_max_step_adjustment max_step_adjustment",
    "Oat's launcher sets it": "local_rank",
    "the adapter starts the processes of one machine": "group_rank",
    "the actor gets whole weights": "lora_sync_only",
    "rewards come from the environments": "non_stop_fixed_reward non_stop_penalty whiten_rewards",
    "gem_core's advantages are used, with PPO's clip": "reinforce_update whiten_adv",
    "continue a run with --resume": "resume_dir resume_tag",
    "the same recipe draws the same numbers: set seed": "rnd_seed",
    "the run directory (--run) holds what is saved": "save_path",
    "actors get the weights after every step": "sync_params_every",
}
"""Why arguments keep Oat's defaults -> their names."""
NATIVE_OWNED: dict[str, str] = {
    **{name: f"set {key} instead" for name, key in _COPIED.items()},
    **{name: f"set {keys} instead" for name, (keys, _) in _COMPUTED.items()},
    **{name: f"set {key} instead" for name, key in _REPLACED.items()},
    **{name: reason for name, (_, reason) in _FIXED.items()},
    **{name: reason for reason, names in _REASONS.items() for name in names.split()},
}
"""Argument of Oat -> what decides it; refused in ``[trainer.oat]``."""
NATIVE_DEFAULTS: dict[str, Callable[[Recipe], Any]] = {
    "flash_attn": lambda recipe: values.is_bfloat16(recipe) and values.on_gpu(recipe),
    "master_addr": lambda recipe: "127.0.0.1",
    "use_fused_lm_head": lambda recipe: recipe.batch.micro_batch == 1,
    "vllm_sleep": values.on_gpu,
}
"""Arguments that the adapter sets to better defaults, and that ``[trainer.oat]`` may set."""
