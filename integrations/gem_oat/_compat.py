"""What of Oat is supported, checked at import, and the faults of Oat that are worked around.

Every shim names the condition under which it can go.
"""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from types import ModuleType
from typing import Any

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


def require_gpu_stack() -> None:
    """Raise MissingDependencyError unless Oat's own engine and launcher can run here."""
    require(ON_A_GPU)


def fix_process_group(module: ModuleType) -> None:
    """Let ``oat.utils.distributed.init_process_group`` work with torch 2.10 and later.

    Oat compares version *strings* ("2.13.0" < "2.6") and passes ``pg_options``, which torch renamed
    to ``backend_options``. End: a release of Oat that compares numbers.
    """
    helper: Any = module._new_process_group_helper
    if "pg_options" in signature(helper).parameters:
        return

    def renamed(*args: Any, pg_options: Any = None, **kwargs: Any) -> Any:
        return helper(*args, **{"backend_options": pg_options, **kwargs})

    module._new_process_group_helper = renamed  # type: ignore[attr-defined]


def fix_critic_schedule(module: ModuleType) -> None:
    """Let ``oat.learners.rl`` build the critic's scheduler for any schedule.

    Oat hands ``min_lr`` to every schedule but one; most do not take it. End: Oat asks which do.
    """
    original: Any = module.get_scheduler

    def picked(name: str, *args: Any, **kwargs: Any) -> Any:
        if name != "cosine_with_min_lr":
            kwargs.pop("scheduler_specific_kwargs", None)
        return original(name, *args, **kwargs)

    module.get_scheduler = picked  # type: ignore[attr-defined]
