"""The Oat that this adapter was written against, checked at import, and repairs of Oat.

Each repair names the condition under which it can be removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any

from gem_core.errors import MissingDependencyError
from gem_core.training.trainers import require
from gem_oat import TRAINER

require(TRAINER)  # version of oat-llm and of Python

ON_A_GPU = replace(
    TRAINER,
    python=((3, 10), (3, 11)),  # dm-launchpad has no later wheels
    modules={
        "vllm": "pip install vllm==0.8.4",
        "launchpad": 'pip install "dm-launchpad[tensorflow]==0.5.2"',
    },
)
"""What a GPU run needs; the CPU backend needs less."""

_LEARNER = "oat.algorithms.ppo:PPOLearner"
_ACTOR = "oat.algorithms.ppo:PPOActor"
_LOGPS = "self model input_ids att_mask temperature compute_entropy"
PRIVATE_SIGNATURES = {
    f"{_LEARNER}._init": "self args actors",
    f"{_LEARNER}.prepare_data": "self strategy tokenizer",
    f"{_LEARNER}.process_feedback_data": "self data_list",
    f"{_LEARNER}.learning_step": "self trajectory",
    f"{_LEARNER}.compute_monte_carlo_advantages": "self rewards response_masks",
    f"{_LEARNER}.compute_ppo_advantages": "self rewards input_ids att_mask response_masks",
    f"{_LEARNER}.get_batch_logps": _LOGPS,
    f"{_LEARNER}.get_completion_mask": "self attention_mask prompt_id_lens",
    f"{_LEARNER}.eval_and_log": "self train_info eval save",
    f"{_LEARNER}.evaluate": "self dataloader steps",
    f"{_LEARNER}._broadcast_to_vllm": "self",
    f"{_ACTOR}.init": "self actor_id save_path",
    f"{_ACTOR}.step": "self prompts formatted_prompts references",
    "oat.utils.data:TransitionDataset.collate_fn": "self item_list",
}
"""Methods that the adapter overrides, with their parameters in Oat 0.2.4."""


def check_private_signatures(signatures: Mapping[str, str] = PRIVATE_SIGNATURES) -> None:
    """Check the methods of Oat that the adapter relies on.

    Args:
        signatures: ``module:Class.method`` -> its parameters.

    Raises:
        MissingDependencyError: a method does not take what it took.
    """
    for path, expected in signatures.items():
        parameters = " ".join(signature(_method(path)).parameters)
        if parameters != expected:
            raise MissingDependencyError(
                f"{path} takes ({parameters}), not ({expected}): install an Oat that was tested, "
                f"oat-llm{TRAINER.tested_range}."
            )


def _method(path: str) -> Any:
    """The function ``module:Class.method``."""
    module, _, names = path.partition(":")
    class_name, _, method = names.partition(".")
    return getattr(getattr(import_module(module), class_name), method)


def require_gpu_stack() -> None:
    """Raise MissingDependencyError unless Oat's own engine and launcher can run here."""
    require(ON_A_GPU)


def fix_process_group(module: ModuleType) -> None:
    """Let ``init_process_group`` of ``oat.utils.distributed`` work with torch 2.10 and later.

    Oat compares version *strings* ("2.13.0" < "2.6") and passes ``pg_options``, which torch renamed
    to ``backend_options``. To be removed when Oat compares numbers.
    """
    helper: Any = module._new_process_group_helper
    if "pg_options" in signature(helper).parameters:
        return

    def renamed(*args: Any, pg_options: Any = None, **kwargs: Any) -> Any:
        return helper(*args, **{"backend_options": pg_options, **kwargs})

    module._new_process_group_helper = renamed  # type: ignore[attr-defined]


def fix_critic_schedule(module: ModuleType) -> None:
    """Let ``oat.learners.rl`` build the critic's scheduler for any schedule.

    Oat gives ``min_lr`` to every schedule but one; most do not take it. To be removed when Oat
    gives it to those that do.
    """
    original: Any = module.get_scheduler

    def with_fitting_arguments(name: str, *args: Any, **kwargs: Any) -> Any:
        if name != "cosine_with_min_lr":
            kwargs.pop("scheduler_specific_kwargs", None)
        return original(name, *args, **kwargs)

    module.get_scheduler = with_fitting_arguments  # type: ignore[attr-defined]
