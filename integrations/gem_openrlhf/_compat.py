"""What this adapter was tested with, checked when it is imported."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from gem_core.errors import MissingDependencyError
from gem_core.training.trainers import require
from gem_openrlhf import TRAINER

require(TRAINER)


def require_gpu_packages() -> None:
    """Raise MissingDependencyError unless everything a GPU run imports is here.

    OpenRLHF imports flash-attn and vLLM unconditionally, deep inside Ray workers; one clear error
    before anything starts beats a stack trace from there. Not needed once OpenRLHF itself checks.
    """
    missing = [name for name in ("flash_attn", "vllm", "deepspeed") if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"OpenRLHF on a GPU needs {', '.join(missing)}, not installed for {sys.executable}. "
            f"Install with: {TRAINER.install}. Without a GPU set hardware.device=cpu."
        )
