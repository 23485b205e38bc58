"""A recipe as Oat's command line, and the command line as ``PPOArgs``."""

from __future__ import annotations

from typing import Any

from gem_core.adapters.native_keys import core_keys, refuse_keys, refuse_values
from gem_core.errors import RecipeError, unknown
from gem_core.training.recipe import Recipe, recipe_keys

APPLIED = frozenset({
    "algorithm.estimator", "algorithm.options", "algorithm.gamma", "algorithm.lam",
    "algorithm.loss_aggregation", "algorithm.loss_constant", "algorithm.lr_schedule",
    "batch.episodes", "batch.group_size", "eval.every", "eval.inside_episodes", "train.steps",
    "train.save_every", "train.log_episodes", "hardware.engine",
})  # fmt: skip
"""Keys that the adapter's actor, learner and launcher carry out; Oat's command line has none."""

REFUSED = {"algorithm.entropy_coef": "Oat computes the entropy without a gradient; set it to 0."}

TRANSLATED = frozenset(recipe_keys()) - core_keys() - APPLIED - REFUSED.keys()
"""Keys that become arguments of Oat."""

FUSED = (
    "Oat's fused LM head gives the transformer body no gradient with 2 or more rows per forward "
    "pass; set batch.micro_batch = 1 or leave use_fused_lm_head off"
)
"""Why the fused head is refused, by `translate` and again before each update."""

DEFAULTS = frozenset({
    "asynchronous", "buffer_clear_every", "lora_sync_only", "max_queries", "num_prompt_epoch",
    "pretrain", "reinforce_update", "resume_dir", "sync_params_every", "whiten_adv",
})  # fmt: skip
"""Oat's arguments that must keep their defaults, beside those that `owned` decides."""


def translate(recipe: Recipe) -> list[str]:
    """Oat's command line for ``recipe``; needs neither Oat nor a GPU.

    Raises:
        RecipeError: a key that Oat cannot honour, by name.
    """
    _check(recipe)
    algorithm, gpu = recipe.algorithm, recipe.hardware.device == "gpu"
    half = recipe.model.dtype == "bfloat16"
    plain = {
        "seed": recipe.seed, "collocate": True, "vllm_sleep": gpu, "master_addr": "127.0.0.1",
        "bf16": half, "flash_attn": half and gpu,
        "gradient_checkpointing": recipe.model.gradient_checkpointing,
        "learning_rate": algorithm.lr, "critic_learning_rate": algorithm.critic_lr or algorithm.lr,
        "cliprange": algorithm.clip_high, "l2": algorithm.weight_decay,
        "adam_beta_1": algorithm.betas[0], "adam_beta_2": algorithm.betas[1],
        "max_norm": algorithm.max_grad_norm,
        # Off: truncated importance sampling, which no other trainer here does by default.
        "tis_c": None,
        "temperature": recipe.sampling.temperature, "top_p": recipe.sampling.top_p,
        "top_k": recipe.sampling.top_k, "generate_max_length": recipe.limits.max_tokens_per_turn,
        "max_model_len": recipe.limits.max_context_tokens,
        "use_fused_lm_head": recipe.batch.micro_batch == 1,
        "logging_steps": 10**9, "max_save_num": max(2, recipe.train.keep_checkpoints),
    }  # fmt: skip
    native = {**plain, **recipe.trainer.get("oat", {}), **owned(recipe)}
    return [word for key, value in native.items() for word in _flag(key, value)]


def owned(recipe: Recipe) -> dict[str, Any]:
    """Oat's arguments that the adapter depends on; `[trainer.oat]` must leave them alone."""
    algorithm, ranks, micro = recipe.algorithm, recipe.hardware.gpus, recipe.batch.micro_batch or 1
    updates = algorithm.epochs * algorithm.minibatches
    in_reward = algorithm.kl_in == "reward"
    return {
        "algo": "PPO", "oracle": "", "prompt_data": "", "num_samples": 1,
        "critic_type": "ppo" if algorithm.estimator == "gae" else "drgrpo",
        "gpus": recipe.hardware.gpus_per_node, "num_groups": recipe.hardware.nodes,
        "num_ppo_epochs": algorithm.epochs,
        "beta": 0.0 if in_reward else algorithm.kl_coef,
        "kl_penalty_coef": algorithm.kl_coef if in_reward else 0.0,
        # One item of the data set is one learner's part of a step; the learner sets the number of
        # rows. Oat plans its schedule for items * max_epochs / train_batch_size updates, and takes
        # the ceiling of ratio * updates for the warm-up.
        "rollout_batch_size": ranks, "rollout_batch_size_per_device": 1,
        "pi_buffer_maxlen_per_device": 1,
        "train_batch_size": ranks * micro, "train_batch_size_per_device": micro,
        "max_epochs": updates * micro,
        "lr_warmup_ratio": max(0.0, algorithm.warmup_steps - 0.5)
        / max(1, recipe.train.steps * updates),
        # Oat's own evaluation, saving and stopping are off: the adapter does them.
        "debug": True, "eval_steps": -1, "save_steps": -1, "max_train": 10**15,
    }  # fmt: skip


def arguments(recipe: Recipe) -> Any:
    """``PPOArgs`` by Oat's own parser and validation; imports Oat.

    Raises:
        RecipeError: as `translate`, or ``[trainer.oat]`` has a value that Oat does not take.
        UnknownNameError: ``[trainer.oat]`` has a key that is no argument of Oat.
    """
    import tyro
    from oat.algorithms.ppo import PPOArgs
    from oat.args import default_args_validation

    known = PPOArgs.__dataclass_fields__
    for key in recipe.trainer.get("oat", {}).keys() - known:
        raise unknown("argument of Oat in [trainer.oat]", key, known)
    try:
        args = tyro.cli(PPOArgs, args=translate(recipe))
    except SystemExit:
        raise RecipeError("trainer.oat: Oat's parser refuses a value; see above.") from None
    # Oat hands the name through to transformers; only its command line offers fewer.
    args.lr_scheduler = recipe.algorithm.schedule_name
    return default_args_validation(args)


def _flag(key: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}" if value else f"--no-{key}"]
    values = value if isinstance(value, (list, tuple)) else [value]
    return [f"--{key}", *map(str, values)]


def _check(recipe: Recipe) -> None:
    """Refuse values, or pairs of them, that Oat cannot honour."""
    algorithm, hardware, native = recipe.algorithm, recipe.hardware, recipe.trainer.get("oat", {})
    gpu, ranks = hardware.device == "gpu", hardware.gpus
    taken = sorted(native.keys() & (owned(recipe).keys() | DEFAULTS))
    node = {"master_addr", "master_port", "group_rank"}
    refuse_keys(recipe, "Oat", REFUSED)
    refuse_values(recipe, "Oat", [
        ("algorithm.clip_low algorithm.clip_high", algorithm.clip_low != algorithm.clip_high,
         "Oat has one clip range; make them equal"),
        ("model.revision", recipe.model.revision is not None,
         "Oat loads the newest one; download yours and name its directory"),
        ("train.steps", not recipe.train.steps, "there is nothing to train"),
        ("hardware.engine hardware.device",
         hardware.engine not in ("default", "vllm" if gpu else "hf"),
         "Oat samples with vllm on a GPU, on a CPU with hf"),
        ("hardware.nodes hardware.gpus_per_node", ranks > 1 and not gpu, "on a CPU there is one"),
        ("hardware.nodes", hardware.nodes > 1 and not node <= native.keys(),
         "start it once per node, with [trainer.oat] master_addr, master_port and group_rank"),
        ("batch.episodes batch.group_size", recipe.groups_per_step % ranks,
         f"groups stay whole: episodes / group_size must be a multiple of {ranks} GPUs"),
        ("trainer", taken,
         f"oat.{'/'.join(taken)} belongs to the adapter; use the recipe's own keys"),
        ("batch.micro_batch", native.get("use_fused_lm_head") and recipe.batch.micro_batch != 1,
         FUSED),
    ])  # fmt: skip
