"""Recipe -> hydra overrides of ``verl.trainer.main_ppo``."""

from __future__ import annotations

import json
from typing import Any

from gem_core.adapters.hydra import override
from gem_core.adapters.native_keys import refuse_keys
from gem_core.errors import RecipeError
from gem_core.training.recipe import Recipe, get_key
from gem_verl.cpu import harness

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
MODEL, REF = "actor_rollout_ref.model", "actor_rollout_ref.ref"
DIRECT: dict[str, tuple[str, ...]] = {
    "seed": (
        f"{ACTOR}.data_loader_seed", f"{ACTOR}.fsdp_config.seed", f"{ROLLOUT}.seed", "data.seed",
        "critic.data_loader_seed", "critic.fsdp.seed",
    ),
    "model.gradient_checkpointing": tuple(
        f"{owner}.enable_gradient_checkpointing" for owner in (MODEL, "critic.model")
    ),
    "algorithm.gamma": ("algorithm.gamma",), "algorithm.lam": ("algorithm.lam",),
    "algorithm.clip_low": (f"{ACTOR}.clip_ratio_low",),
    "algorithm.clip_high": (f"{ACTOR}.clip_ratio_high",),
    "algorithm.entropy_coef": (f"{ACTOR}.entropy_coeff",),
    "algorithm.epochs": (f"{ACTOR}.ppo_epochs",),
    "algorithm.loss_constant": (f"{ACTOR}.loss_scale_factor",),
    "algorithm.lr": (f"{ACTOR}.optim.lr",),
    "algorithm.lr_schedule": (
        f"{ACTOR}.optim.lr_scheduler_type", "critic.optim.lr_scheduler_type",
    ),
    "algorithm.warmup_steps": (f"{ACTOR}.optim.lr_warmup_steps", "critic.optim.lr_warmup_steps"),
    "algorithm.betas": (f"{ACTOR}.optim.betas", "critic.optim.betas"),
    "algorithm.weight_decay": (f"{ACTOR}.optim.weight_decay", "critic.optim.weight_decay"),
    "algorithm.max_grad_norm": (f"{ACTOR}.optim.clip_grad", "critic.optim.clip_grad"),
    "batch.episodes": ("data.train_batch_size",),
    "batch.micro_batch": (
        f"{ACTOR}.ppo_micro_batch_size_per_gpu", "critic.ppo_micro_batch_size_per_gpu",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", f"{REF}.log_prob_micro_batch_size_per_gpu",
    ),
    "sampling.temperature": (f"{ROLLOUT}.temperature",),
    "sampling.top_p": (f"{ROLLOUT}.top_p",), "sampling.top_k": (f"{ROLLOUT}.top_k",),
    "model.dtype": (f"{ROLLOUT}.dtype",),
    "train.steps": ("trainer.total_training_steps",),
    "train.keep_checkpoints": (
        "trainer.max_actor_ckpt_to_keep", "trainer.max_critic_ckpt_to_keep",
    ),
    "hardware.nodes": ("trainer.nnodes",), "hardware.gpus_per_node": ("trainer.n_gpus_per_node",),
}  # fmt: skip
"""Recipe key -> native keys that take the same value."""
WIRING: dict[str, Any] = {
    f"{MODEL}.external_lib": "gem_verl.plugin",
    f"{ROLLOUT}.n": 1,  # the members of a group are tasks of their own
    f"{ROLLOUT}.agent.default_agent_loop": "gem",
    "data.train_files": "gem:train",
    "data.val_files": "gem:held-out",
    "data.custom_cls.path": "pkg://gem_verl.rollout",
    "data.custom_cls.name": "TaskDataset",
    "data.shuffle": False,
    "trainer.use_v1": True,
    "trainer.v1.trainer_mode": "sync",
    "trainer.v1.sampler.custom_sampler.path": "pkg://gem_verl.sampler",
    "trainer.v1.sampler.custom_sampler.name": "GemSampler",
    "trainer.total_epochs": 1,  # the tasks of all steps are one epoch
}
"""Where the adapter is plugged in: refused in ``[trainer.verl]``, as it would be left out."""
FIXED: dict[str, Any] = {
    f"{ACTOR}.clip_ratio_c": 1e9,  # plain PPO: never verl's second clip of negative advantages
    f"{ACTOR}.strategy": "fsdp2",
    "critic.strategy": "fsdp2",
    f"{ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
    f"{ACTOR}.checkpoint.load_contents": ["model", "optimizer", "extra"],  # else those saved
    f"{ROLLOUT}.tensor_model_parallel_size": 1,
    "data.dataloader_num_workers": 0,
    "reward.num_workers": 1,
    "trainer.project_name": "gem-core", "trainer.logger": ["console"],
    "trainer.val_before_train": False,
}  # fmt: skip
"""Defaults of verl that do not fit, which ``[trainer.verl]`` may change."""
REFUSED: dict[str, str] = {
    "algorithm.kl_in": (
        "verl adds a KL in the reward to single tokens, where it would count as reward of turns. "
        'Use algorithm.kl_in = "loss".'
    ),
}
APPLIED = frozenset({"batch.group_size", "eval.inside_episodes", "train.log_episodes"})
"""Carried out by the adapter in verl's processes, so there is no native key."""
TRANSLATED = frozenset(DIRECT) | {
    "algorithm.estimator", "algorithm.options", "algorithm.kl_coef", "algorithm.minibatches",
    "algorithm.loss_aggregation", "algorithm.critic_lr", "eval.every", "train.save_every",
    "hardware.device", "hardware.engine",
}  # fmt: skip


def translate(recipe: Recipe) -> list[str]:
    """Return ``key=value`` overrides, the native keys of ``[trainer.verl]`` last.

    The model's path, the run directory and the recipe itself are added by the launcher.

    Raises:
        RecipeError: verl cannot honour a key; the message names it.
    """
    refuse_keys(recipe, "verl", REFUSED)
    _check(recipe)
    keys = {n: get_key(recipe, key) for key, names in DIRECT.items() for n in names}
    keys |= WIRING | FIXED | _algorithm(recipe) | _hardware(recipe)
    if recipe.hardware.device == "cpu":
        keys |= harness.keys(recipe)
    keys |= recipe.trainer.get("verl", {})
    return [override(key, value) for key, value in keys.items()]


def payload(recipe: Recipe) -> str:
    """The recipe as text without what hydra (quotes) or OmegaConf (dollars) would interpret."""
    return json.dumps(recipe.to_dict()).replace("'", "\\u0027").replace("$", "\\u0024")


def _check(recipe: Recipe) -> None:
    cannot = "verl cannot honour"
    if recipe.algorithm.lr_schedule == "linear":
        raise RecipeError(f"{cannot} algorithm.lr_schedule = 'linear': use constant or cosine.")
    for key in sorted(WIRING.keys() & {k.lstrip("+~") for k in recipe.trainer.get("verl", {})}):
        raise RecipeError(f"{cannot} trainer.verl.{key}: the adapter needs {WIRING[key]!r} there.")
    if recipe.train.steps < 1:
        raise RecipeError(f"{cannot} train.steps = 0: it needs at least one step.")
    if (recipe.hardware.device, recipe.hardware.engine) == ("gpu", "hf"):
        raise RecipeError(f"{cannot} hardware.engine = 'hf' on hardware.device = 'gpu': use vllm.")


def _algorithm(recipe: Recipe) -> dict[str, Any]:
    algorithm, modes = recipe.algorithm, {"token": "token-mean", "sequence": "seq-mean-token-mean"}
    return {
        "algorithm.adv_estimator": f"gem_{algorithm.estimator}",
        **{f"+algorithm.gem_options.{k}": v for k, v in algorithm.options.items()},
        "critic.enable": algorithm.estimator == "gae",
        "critic.optim.lr": algorithm.critic_lr or algorithm.lr,
        f"{ACTOR}.ppo_mini_batch_size": recipe.batch.episodes // algorithm.minibatches,
        f"{ACTOR}.shuffle": algorithm.minibatches > 1,
        f"{ACTOR}.loss_agg_mode": modes.get(algorithm.loss_aggregation, "seq-mean-token-sum-norm"),
        f"{ACTOR}.use_kl_loss": bool(algorithm.kl_coef),
        f"{ACTOR}.kl_loss_coef": algorithm.kl_coef,
        f"{ROLLOUT}.val_kwargs.temperature": recipe.eval.temperature,
        f"{ROLLOUT}.val_kwargs.do_sample": recipe.eval.temperature > 0,
        "trainer.experiment_name": recipe.name,
        "trainer.save_freq": recipe.train.save_every or recipe.train.steps,
        "trainer.test_freq": recipe.eval.every or -1,
    }


def _hardware(recipe: Recipe) -> dict[str, Any]:
    hardware, context = recipe.hardware, recipe.limits.max_context_tokens
    engine = "vllm" if hardware.engine == "default" else hardware.engine
    keys: dict[str, Any] = {
        f"{ACTOR}.use_dynamic_bsz": recipe.batch.micro_batch is None,
        f"{ACTOR}.ppo_max_token_len_per_gpu": max(16384, context or 0),
        f"{ROLLOUT}.name": engine,
        "reward.reward_model.rollout.name": engine,
    }
    if context is not None:
        keys |= {"data.max_prompt_length": context, "data.max_response_length": context}
        # verl keeps one token of SGLang's context free.
        keys[f"{ROLLOUT}.max_model_len"] = context + (engine == "sglang")
    if recipe.model.dtype == "float32":  # else verl's own: float32 weights, bfloat16 computation
        for owner in (f"{ACTOR}.fsdp_config", f"{REF}.fsdp_config", "critic.fsdp"):
            keys[f"{owner}.dtype"] = "float32"
            for kind in ("param", "reduce", "buffer"):
                keys[f"+{owner}.mixed_precision.{kind}_dtype"] = "fp32"
    if hardware.nodes > 1:
        keys["+ray_kwargs.ray_init.address"] = "auto"
    return keys
