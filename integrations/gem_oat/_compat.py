"""The Oat that this adapter was written against, checked at import, and repairs of Oat.

Each repair names the condition under which it can be removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any

from gem_adapters.value_heads import start_at_zero
from gem_core.errors import GemError, MissingDependencyError
from gem_core.runs.recipe.recipe import SamplingConfig
from gem_core.runs.trainers import require
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
ON_A_CPU = {"vllm": "oat-vllm", "launchpad": "launchpad"}
"""Part of the GPU stack -> the environment of ``scripts/make_env.py`` that has it."""

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


def see_gpus(number: int) -> None:
    """Have Oat see ``number`` GPUs, the first of ``CUDA_VISIBLE_DEVICES``, of which it takes all.

    To be removed when Oat takes ``gpus`` of them.

    Raises:
        GemError: the variable does not name them by number, as Oat needs.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not visible:
        return
    first = [name.strip() for name in visible.split(",")][:number]
    if not all(name.isdigit() for name in first):
        raise GemError(
            f"CUDA_VISIBLE_DEVICES={visible}: Oat takes GPUs by number alone; set it to numbers "
            "as those of nvidia-smi, 0 for the first."
        )
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(first)


def require_parts(names: Iterable[str]) -> None:
    """Raise MissingDependencyError unless these parts of the GPU stack are installed, for a CPU."""
    modules = {name: f"python scripts/make_env.py {ON_A_CPU[name]}" for name in sorted(names)}
    require(replace(TRAINER, modules=modules))


def report_what_is_sampled(sampling: SamplingConfig) -> None:
    """Have vLLM report log-probabilities of the distribution that it samples from.

    Its V1 engine reports those at temperature 1 and without top-p and top-k; its V0 engine those
    that it drew with. Read, not run on a GPU: vLLM 0.8.4 takes V0 by itself where an engine is made
    outside of the main thread (``EngineArgs._is_v1_supported_oracle``), and launchpad 0.5.2 serves
    an actor's ``init`` in a thread of its server. So V1 needs ``VLLM_USE_V1=1``; the variable is
    set here all the same, for launchers that call ``init`` in the main thread. To be removed when
    Oat takes a vLLM that has ``logprobs_mode``.

    Raises:
        GemError: the user asks for the V1 engine.
    """
    if (sampling.temperature, sampling.top_p, sampling.top_k) == (1.0, 1.0, -1):
        return
    if os.environ.get("VLLM_USE_V1") == "1":
        raise GemError(
            "VLLM_USE_V1=1: this engine of vLLM 0.8 reports log-probabilities at temperature 1, "
            "not those that it samples with. Leave the variable out, or set "
            "sampling.temperature = 1, top_p = 1, top_k = -1."
        )
    os.environ["VLLM_USE_V1"] = "0"


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


def start_critics_at_zero(module: ModuleType) -> None:
    """Let the values of the critics that ``oat.learners.rl`` makes begin at 0.

    Oat draws the head at random. To be removed when Oat has a setting for it.
    """
    original: Any = module.Critic

    def starting_at_zero(*args: Any, **kwargs: Any) -> Any:
        critic = original(*args, **kwargs)
        start_at_zero(critic.model, critic.model.value_head_prefix)
        return critic

    module.Critic = starting_at_zero  # type: ignore[attr-defined]


def drop_empty_groups(module: ModuleType) -> None:
    """Let ``oat.utils.deepspeed`` train a model whose every trained weight decays, as with LoRA.

    Oat makes a second group of parameters, which is then empty; DeepSpeed drops it, and the
    schedulers of torch 2.10 and later refuse to go on with another number of groups. To be removed
    when Oat leaves empty groups out.
    """
    original: Any = module.get_optimizer_grouped_parameters

    def without_empty(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        return [group for group in original(*args, **kwargs) if group["params"]]

    module.get_optimizer_grouped_parameters = without_empty  # type: ignore[attr-defined]
