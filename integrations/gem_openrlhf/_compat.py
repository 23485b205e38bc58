"""The OpenRLHF that this adapter was written against, checked before it is used."""

from __future__ import annotations

import inspect
import sys
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from gem_adapters.value_heads import start_at_zero
from gem_core.errors import MissingDependencyError
from gem_core.runs.trainers import require
from gem_openrlhf import TRAINER

require(TRAINER)

_MAKER = "openrlhf.trainer.ppo_utils.experience_maker:RemoteExperienceMaker"
_TRAINER = "openrlhf.trainer.ppo_trainer:BasePPOTrainer"
_GENERATOR = "openrlhf.trainer.ppo_trainer_async:GenerateSamplesActor"
_EXECUTE = "self prompt label sampling_params max_length hf_tokenizer llm_engine images"
PRIVATE_SIGNATURES = {
    "openrlhf.utils.agent:AgentExecutorBase.execute": _EXECUTE,
    f"{_MAKER}.make_experience_batch": "self rollout_samples",
    f"{_MAKER}.compute_advantages_and_returns": "self experiences",
    f"{_MAKER}._dispatch_forward": "self group sync_condition kwargs",
    f"{_MAKER}._flatten_results": "self refs duplicate_factor",
    f"{_TRAINER}.fit": "self global_step",
    f"{_TRAINER}.train_step": "self rollout_samples global_step",
    f"{_TRAINER}.broadcast_to_vllm": "self",
    f"{_TRAINER}.init_checkpoint_states": "self",
    f"{_TRAINER}.save_logs_and_checkpoints": "self global_step logs_dict client_states",
    f"{_GENERATOR}._run_eval": "self",
}
"""Methods that the adapter overrides or calls, with their parameters in OpenRLHF 0.11.2."""
_ADDED_BY_RAY = "_ray_trace_ctx"


def check_private_signatures() -> None:
    """Raise MissingDependencyError when a method that the adapter relies on has changed."""
    for path, expected in PRIVATE_SIGNATURES.items():
        names = inspect.signature(_method(path)).parameters
        parameters = " ".join(name for name in names if name != _ADDED_BY_RAY)
        if parameters != expected:
            raise MissingDependencyError(
                f"{path} takes ({parameters}), not ({expected}): install an OpenRLHF that was "
                f"tested, openrlhf{TRAINER.tested_range}."
            )


def _method(path: str) -> Any:
    """Return the function ``module:Class.method``, also of a class that Ray wraps."""
    module, _, attributes = path.partition(":")
    class_name, _, method = attributes.partition(".")
    owner = getattr(import_module(module), class_name)
    if hasattr(owner, "__ray_metadata__"):
        owner = owner.__ray_metadata__.modified_class
    return getattr(owner, method)


def require_gpu_packages() -> None:
    """Raise MissingDependencyError unless everything a GPU run imports is installed.

    OpenRLHF imports flash-attn and vLLM unconditionally, deep inside Ray workers; one clear error
    before anything starts beats a stack trace from there. Not needed once OpenRLHF itself checks.
    """
    missing = [name for name in ("flash_attn", "vllm", "deepspeed") if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"OpenRLHF on a GPU needs {', '.join(missing)}, not installed for {sys.executable}. "
            f"Install with: {TRAINER.install}. Without a GPU set hardware.device=cpu."
        )


@cache
def start_critics_at_zero() -> None:
    """Let the values of OpenRLHF's critics begin at 0; done once per process.

    OpenRLHF draws the head at random. The model is changed where it is made, before DeepSpeed
    copies its weights. To be removed when OpenRLHF has a setting for it.
    """
    from openrlhf.trainer.ray import ppo_critic

    original = ppo_critic.get_llm_for_sequence_regression

    @wraps(original)
    def starting_at_zero(*args: Any, **kwargs: Any) -> Any:
        model = original(*args, **kwargs)
        start_at_zero(model, model.value_head_prefix)
        return model

    ppo_critic.get_llm_for_sequence_regression = starting_at_zero
