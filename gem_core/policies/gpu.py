"""The memory of this process's GPU: what is given back, and what ended processes still hold."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

QUIET_S = 3.0
"""Seconds without more free memory after which nothing is waited for."""
PATIENCE_S = 60.0
"""Seconds that are waited at most."""
_POLL_S = 0.5


def release_memory() -> None:
    """Return the memory of a GPU that this process holds without using it.

    Objects that refer to each other in circles, as a trainer and its callbacks do, hold their
    tensors until they are collected; torch keeps what was freed until its cache is emptied.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    gc.collect()
    torch.cuda.empty_cache()


def wait_for_memory(
    free: Callable[[], int] | None = None, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Release memory, and wait until other processes give none back any more.

    The processes of a trainer (Ray's actors, engines) end after its last line, some seconds later.
    Who counts the free memory meanwhile counts too little, and vLLM ends with "Error in memory
    profiling" where memory becomes free while it starts.

    Args:
        free: returns the free bytes; ``None`` = those of the first GPU, nothing is done without.
        sleep: waits so many seconds.
    """
    release_memory()
    count = free or _counter()
    if count is None:
        return
    most = count()
    quiet = waited = 0.0
    while quiet < QUIET_S and waited < PATIENCE_S:
        sleep(_POLL_S)
        waited += _POLL_S
        now = count()
        quiet = 0.0 if now > most else quiet + _POLL_S
        most = max(most, now)


def _counter() -> Callable[[], int] | None:
    """Return what counts the free bytes of the first GPU; ``None`` where there is none."""
    import torch

    if not torch.cuda.is_available():
        return None
    return lambda: int(torch.cuda.mem_get_info()[0])
