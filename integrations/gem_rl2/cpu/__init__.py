"""CPU stand-ins: let the real RL2 train where there is no GPU. For tests and the tiny profile.

What it stands in for, and nothing else of RL2 is touched:

* ``flash_attn``: the variable-length attention kernels in plain torch (`.attention`); the real
  ``ring_flash_attn`` runs on top of them;
* ``sglang`` and ``sglang_router``: a server process with the same HTTP interface around gem_core's
  CPU engine (`.engine`, `.router`); with ``GEM_RL2_ROUTER=sglang`` the router is sglang's own;
* the device: NCCL becomes Gloo and CUDA calls become no-ops (`.device`).

It refuses to work on a machine with a GPU.
"""

from __future__ import annotations

import os

from gem_adapters.cpu_threads import VARIABLE as THREADS
from gem_adapters.cpu_threads import cpu_threads
from gem_core.errors import GemError
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.allocator import keep_freed_memory


def environment(recipe: Recipe) -> dict[str, str]:
    """Environment variables of a run on a CPU."""
    keep_freed_memory()
    return {
        **os.environ,
        THREADS: str(cpu_threads(recipe)),
        "TOKENIZERS_PARALLELISM": "false",
    }


def enable() -> None:
    """Install the stand-ins in this process, before anything of ``RL2.workers`` is imported.

    Raises:
        GemError: there is a GPU, so the real engine and kernels must be used.
    """
    import torch

    if torch.cuda.is_available():
        raise GemError(
            "hardware.device = 'cpu' is for machines without a GPU; this one has one. Use "
            "hardware.device = 'gpu', or hide it with CUDA_VISIBLE_DEVICES=''."
        )
    from gem_rl2.cpu import device, stand_ins

    stand_ins.install()
    device.patch()
