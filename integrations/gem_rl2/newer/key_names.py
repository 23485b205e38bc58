"""What the newer API calls the configuration keys of 0.0.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RENAMED = {
    "actor.gradient_checkpointing": "actor.enable_gradient_checkpointing",
    "actor.lr": "actor.optimizer.lr",
    "actor.weight_decay": "actor.optimizer.weight_decay",
    "actor.betas": "actor.optimizer.betas",
    "actor.scheduler": "actor.scheduler.name",
    "actor.warmup_ratio": "actor.scheduler.warmup_ratio",
    "critic.lr": "critic.optimizer.lr",
    "rollout.server_args.dtype": "actor.dtype",
    "rollout.dynamic_filtering": "rollout.train.dynamic_filtering",
    "rollout.train_sampling_params.temperature": "rollout.train.sampling_params.temperature",
    "rollout.train_sampling_params.top_p": "rollout.train.sampling_params.top_p",
    "rollout.train_sampling_params.top_k": "rollout.train.sampling_params.top_k",
    "rollout.train_sampling_params.max_new_tokens": "rollout.train.sampling_params.max_new_tokens",
    "rollout.train_sampling_params.no_stop_trim": "rollout.train.sampling_params.no_stop_trim",
    "rollout.train_sampling_params.stop": "rollout.train.sampling_params.stop",
    "rollout.train_sampling_params.stop_token_ids": "rollout.train.sampling_params.stop_token_ids",
    "rollout.test_sampling_params.temperature": "rollout.test.sampling_params.temperature",
    "rollout.test_sampling_params.top_p": "rollout.test.sampling_params.top_p",
    "rollout.test_sampling_params.top_k": "rollout.test.sampling_params.top_k",
    "rollout.test_sampling_params.max_new_tokens": "rollout.test.sampling_params.max_new_tokens",
    "rollout.test_sampling_params.no_stop_trim": "rollout.test.sampling_params.no_stop_trim",
    "rollout.test_sampling_params.stop": "rollout.test.sampling_params.stop",
    "rollout.test_sampling_params.stop_token_ids": "rollout.test.sampling_params.stop_token_ids",
    "train_data.path": "rollout.train.path",
    "train_data.prompts_per_rollout": "rollout.train.prompts_per_rollout",
    "train_data.responses_per_prompt": "rollout.train.responses_per_prompt",
    "test_data.path": "rollout.test.path",
    "test_data.prompts_per_rollout": "rollout.test.prompts_per_rollout",
    "test_data.responses_per_prompt": "rollout.test.responses_per_prompt",
    "trainer.n_epochs": "trainer.total_steps",
}
"""Name in 0.0.2 -> name in the newer API; other names are the same in both."""
MISSING = frozenset(
    {"actor.epochs", "critic.betas", "critic.epochs", "actor.sp_size", "actor.tp_size"}
)
"""Names in 0.0.2 that are not set in the newer API: it makes one pass over each batch, and the
critic's betas are among `CRITIC`; sequences and layers divided over ranks are refused."""
CRITIC = (
    "model_name",
    "dtype",
    "enable_gradient_checkpointing",
    "max_length_per_device",
    "max_grad_norm",
    "scheduler.name",
    "scheduler.warmup_ratio",
    "optimizer.weight_decay",
    "optimizer.betas",
)
"""What the critic takes from the actor; unlike in 0.0.2, its own configuration does not say so."""
OWNED = {
    "rollout.train.partial_rollout": "gem-core plays whole episodes, so it must stay off",
    "actor.scheduler.min_lr": "set algorithm.lr_schedule instead",
    "critic.scheduler.min_lr": "set algorithm.lr_schedule instead",
}
"""Keys that only the newer API has and the adapter decides, see `gem_rl2.config.NATIVE_OWNED`."""


def newer_name(name: str) -> str:
    """What the newer API calls the key ``name`` of 0.0.2; hydra's ``+`` before it stays."""
    key = name.lstrip("+")
    return name.removesuffix(key) + RENAMED.get(key, key)


def to_newer(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides for 0.0.2 as overrides for the newer API.

    Args:
        keys: key -> value; a key may begin with hydra's ``+`` or ``++``.

    Returns:
        The same under the newer names, without what is `MISSING`, and with the critic following
        the actor.
    """
    kept = {name: value for name, value in keys.items() if name.lstrip("+") not in MISSING}
    overrides = {newer_name(name): value for name, value in kept.items()}
    # Only its default schedule has a minimum; the others do not take one.
    overrides["~actor.scheduler.min_lr"] = None
    overrides["~critic.scheduler.min_lr"] = None
    for name in CRITIC:
        overrides[f"++critic.{name}"] = f"${{actor.{name}}}"
    return overrides
