"""What of Oat is supported, checked at import, and the faults of Oat that are worked around.

Every shim names the condition under which it can go.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from inspect import signature
from types import ModuleType
from typing import Any

from gem_core.errors import MissingDependencyError
from gem_core.trainers import require
from gem_oat import TRAINER

require(TRAINER)  # version of oat-llm and of Python

GPU_STACK = {
    "vllm": "pip install vllm==0.8.4",
    "launchpad": 'pip install "dm-launchpad[tensorflow]==0.5.2"',
}


def require_gpu_stack() -> None:
    """Raise MissingDependencyError unless Oat's own engine and launcher can run here."""
    if sys.version_info[:2] != (3, 10):
        raise MissingDependencyError(
            f"Oat trains on Python 3.10 only (dm-launchpad has no later wheels); this is Python "
            f"{sys.version_info[0]}.{sys.version_info[1]}. Make an environment for it: "
            f"python3.10 -m venv oat && oat/bin/{TRAINER.install}"
        )
    missing = {name: how for name, how in GPU_STACK.items() if find_spec(name) is None}
    if missing:
        raise MissingDependencyError(
            f"Oat needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            f"installed: {'; '.join(missing.values())}"
        )


def fix_process_group(module: ModuleType) -> None:
    """Let ``oat.utils.distributed.init_process_group`` work with torch 2.10 and later.

    Oat compares version *strings* ("2.13.0" < "2.6") and passes ``pg_options``, which torch renamed
    to ``backend_options``. End: a release of Oat that compares numbers.
    """
    helper: Any = module._new_process_group_helper
    if "pg_options" in signature(helper).parameters or hasattr(helper, "gem_renames"):
        return

    def renamed(*args: Any, **kwargs: Any) -> Any:
        if "pg_options" in kwargs:
            kwargs["backend_options"] = kwargs.pop("pg_options")
        return helper(*args, **kwargs)

    renamed.gem_renames = True  # type: ignore[attr-defined]
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
