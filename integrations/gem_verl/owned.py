"""Native keys that ``[trainer.verl]`` may not set, besides those that a recipe key becomes."""

from __future__ import annotations

from gem_core.env.registration.references import TRUST_VARIABLE
from gem_core.runs.directory.run_dir import RUN_VARIABLE
from gem_verl.tables import ACTOR, MODEL, REF, ROLLOUT, SHARDED

_OPTIM = f"{ACTOR}.optim"
REPLACED: dict[str, str] = {
    "algorithm.clip_low and algorithm.clip_high": f"{ACTOR}.clip_ratio",
    "algorithm.kl_coef": (
        "algorithm.kl_ctrl.type algorithm.kl_ctrl.kl_coef algorithm.kl_ctrl.horizon "
        "algorithm.kl_ctrl.target_kl"
    ),
    "algorithm.rollout_correction": " ".join(
        f"algorithm.rollout_correction.{name}"
        for name in (
            "rollout_rs",
            "rollout_rs_threshold",
            "bypass_mode",
            "loss_type",
            "rollout_is_batch_normalize",
        )
    ),
    "algorithm.options": "algorithm.norm_adv_by_std_in_grpo",
    "algorithm.lr": f"{_OPTIM}.override_optimizer_config.lr",
    "algorithm.critic_lr": "critic.optim.override_optimizer_config.lr",
    "algorithm.lr_schedule": " ".join(
        f"{owner}.{name}"
        for owner in (_OPTIM, "critic.optim")
        for name in ("total_training_steps", "min_lr_ratio", "num_cycles", "warmup_style")
    ),
    "algorithm.warmup_steps": (
        f"{_OPTIM}.lr_warmup_steps_ratio critic.optim.lr_warmup_steps_ratio"
    ),
    "algorithm.betas": (
        f"{_OPTIM}.override_optimizer_config.betas critic.optim.override_optimizer_config.betas"
    ),
    "algorithm.weight_decay": (
        f"{_OPTIM}.override_optimizer_config.weight_decay "
        "critic.optim.override_optimizer_config.weight_decay"
    ),
    "algorithm.max_grad_norm": f"{ACTOR}.grad_clip critic.grad_clip",
    "batch.episodes": "data.gen_batch_size",
    "batch.micro_batch": (
        f"{ACTOR}.ppo_micro_batch_size critic.ppo_micro_batch_size "
        f"critic.forward_micro_batch_size {REF}.log_prob_micro_batch_size "
        f"{ROLLOUT}.log_prob_micro_batch_size"
    ),
    "sampling.temperature": f"{ROLLOUT}.do_sample",
    "limits.max_context_tokens": f"{ROLLOUT}.prompt_length {ROLLOUT}.response_length",
    "model.lora.rank": f"{MODEL}.lora_adapter_path {MODEL}.exclude_modules",
    "hardware.sharding": " ".join(
        f"{owner}.{name}" for owner in SHARDED for name in ("fsdp_size", "offload_policy")
    ),
    "context.template": f"{ROLLOUT}.ignore_eos {MODEL}.custom_chat_template",
    "model.path": f"data.tokenizer {MODEL}.tokenizer_path critic.model.tokenizer_path",
    "train.steps": "data.train_max_samples",
    "eval.inside_episodes": f"data.val_max_samples data.val_batch_size {ROLLOUT}.val_kwargs.n",
    "hardware.gpus_per_node": f"{ROLLOUT}.n_gpus_per_node",
}
"""Recipe key -> native keys that would compete with those that it decides, or do its work."""
_ASYNCHRONOUS = (
    "a step's batch would be the episodes that finished first, sampled under several versions of "
    "the weights, and not the recipe's tasks of that step; only the synchronous trainer is used"
)
UNSOUND: dict[str, str] = {
    "algorithm.filter_groups": (
        "it exchanges groups for others, so that a step trains on other tasks than the recipe's; "
        "the adapter's sampler does not do that. Leave it out"
    ),
    "trainer.v1.sampler.sync_refill_failed_groups": (
        "the adapter's sampler exchanges no group; episodes that broke are left out of the update"
    ),
    "trainer.v1.trainer_mode": _ASYNCHRONOUS,
    "trainer.v1.colocate_async": _ASYNCHRONOUS,
    "trainer.v1.separate_async": _ASYNCHRONOUS,
    "trainer.v1.sampler.max_off_policy_threshold": _ASYNCHRONOUS,
    "trainer.v1.sampler.max_off_policy_strategy": _ASYNCHRONOUS,
    "algorithm.rollout_correction.rollout_rs": (
        "it takes tokens out of the mask before the estimator runs, which would take what is left "
        'of a turn for two turns. Use algorithm.rollout_correction = "tis"'
    ),
}
"""Native keys that would train on something else than the recipe says -> why."""
OF_THE_RUN = {
    f"{MODEL}.path": "set model.path instead",
    "critic.model.path": "set model.path instead",
    "data.gem_recipe": "the launcher sets it, from the recipe",
    "data.gem_run": "the launcher sets it; name the run directory with --run instead",
    "trainer.default_local_dir": "it is in the run directory; name that with --run instead",
    "trainer.resume_mode": "continue a run with --resume instead",
    "trainer.resume_from_path": "continue a run with --resume instead",
    f"ray_kwargs.ray_init.runtime_env.env_vars.{RUN_VARIABLE}": (
        "the launcher sets it; name the run directory with --run instead"
    ),
    f"ray_kwargs.ray_init.runtime_env.env_vars.{TRUST_VARIABLE}": (
        "the launcher sets it; give --trust to the command instead"
    ),
}
"""Native keys that the launcher sets -> what to do instead."""
