"""The memory of this process's GPU: what is given back, and what ended processes still hold."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

QUIET_S, PATIENCE_S, _POLL_S = 3.0, 60.0, 0.5
"""Seconds without more free memory after which nothing is waited for, and seconds at most."""


def release_memory() -> None:
    """Return the memory of a GPU that this process holds without using it, also in circles."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


def wait_for_memory(
    free: Callable[[], int] | None = None, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Release memory, and wait until other processes give none back any more.

    A trainer's processes end after it. Meanwhile too little is free, and vLLM does not start.

    Args:
        free: returns the free bytes; ``None`` = those of the first GPU, if there is one.
    """
    import torch

    release_memory()
    if free is None and not torch.cuda.is_available():
        return
    count = free or (lambda: int(torch.cuda.mem_get_info()[0]))
    most = count()
    quiet = waited = 0.0
    while quiet < QUIET_S and waited < PATIENCE_S:
        sleep(_POLL_S)
        waited += _POLL_S
        now = count()
        quiet = 0.0 if now > most else quiet + _POLL_S
        most = max(most, now)
