"""The verl that this adapter was written against, checked before the first step."""

from __future__ import annotations

import inspect
from functools import cache, wraps
from importlib import import_module
from typing import Any

from gem_core.errors import MissingDependencyError
from gem_core.runs.trainers import require
from gem_verl import TRAINER
from gem_verl.values import PREFIX

require(TRAINER)  # an untested verl or Python stops here, with the command that helps

_TRAINER_BASE = "verl.trainer.ppo.v1.trainer_base"
_REPLAY_BUFFER = "verl.trainer.ppo.v1.replay_buffer"
_AGENT_LOOP = "verl.experimental.agent_loop.agent_loop"
PRIVATE_SIGNATURES = {
    f"{_TRAINER_BASE}:compute_advantage_for_multi_trajectories": (
        "data batch_keys adv_estimator gamma lam num_repeat norm_adv_by_std_in_grpo config"
    ),
    f"{_TRAINER_BASE}:PPOTrainer._add_prompts_to_generate": "self num_prompts",
    f"{_REPLAY_BUFFER}:ReplayBuffer.sample": "self global_steps partition_id batch_size",
    f"{_AGENT_LOOP}:AgentLoopOutput.as_dict": "self",
    "verl.utils.model:load_valuehead_model": (
        "local_path torch_dtype model_config trust_remote_code"
    ),
    "verl.workers.utils.losses:ppo_loss": "config model_output data dp_group",
    "verl.workers.engine.fsdp.transformer_impl:FSDPEngineWithValueHead.forward_backward_batch": (
        "self data loss_function forward_only"
    ),
    "verl.workers.engine.fsdp.transformer_impl:FSDPEngine._merged_lora_per_tensor_param": "self",
    "verl.utils.checkpoint.fsdp_checkpoint_manager:get_fsdp_full_state_dict": (
        "model offload_to_cpu rank0_only"
    ),
}
"""What the adapter overrides, wraps or calls of verl's inside, with its parameters in verl 0.9."""


def check_private_signatures() -> None:
    """Hold what the adapter relies on against `PRIVATE_SIGNATURES`.

    Raises:
        MissingDependencyError: one of them is not what it was.
    """
    for path, expected in PRIVATE_SIGNATURES.items():
        parameters = " ".join(inspect.signature(_resolve(path)).parameters)
        if parameters != expected:
            raise MissingDependencyError(
                f"{path} takes ({parameters}), not ({expected}): install a verl that was tested, "
                f"verl{TRAINER.tested_range}."
            )


def _resolve(path: str) -> Any:
    """Return the function ``module:name`` or ``module:Class.name``."""
    module, _, names = path.partition(":")
    value: Any = import_module(module)
    for name in names.split("."):
        value = getattr(value, name)
    return value


@cache
def hand_over_values() -> None:
    """Wrap verl's advantage call so that gem-core's estimators get the critic's values.

    verl 0.9 gives them to its own "gae" alone. To be removed when it passes them on. Without a
    critic, and for all other estimators, the call stays verl's own. Done once per process.

    Raises:
        MissingDependencyError: the call is not what it was, see `PRIVATE_SIGNATURES`.
    """
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn
    from verl.trainer.ppo.v1 import trainer_base

    check_private_signatures()
    original = trainer_base.compute_advantage_for_multi_trajectories

    @wraps(original)
    def compute(data: Any, batch_keys: Any, adv_estimator: Any, **settings: Any) -> Any:
        batch = data.batch
        if not str(adv_estimator).startswith(PREFIX) or "values" not in batch:
            return original(data, batch_keys, adv_estimator, **settings)
        estimator = get_adv_estimator_fn(adv_estimator)
        batch["advantages"], batch["returns"] = estimator(
            token_level_rewards=batch["token_level_rewards"],
            response_mask=batch["response_mask"],
            values=batch["values"],
            config=settings["config"],
            index=data.non_tensor_batch.get("uid"),
        )
        return data

    trainer_base.compute_advantage_for_multi_trajectories = compute
