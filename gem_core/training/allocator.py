"""Keep freed memory: on a CPU, torch allocates and frees hundreds of large tensors in every step.

glibc maps pages of its own for each block above a threshold and unmaps them when it is freed, so
that every tensor of a few megabytes costs thousands of page faults. Keeping the memory made a
training step of the tiny profile twice as fast (``benchmarks/allocator``).
"""

from __future__ import annotations

import ctypes
import os
import platform

_SETTINGS = {
    # Name of the variable -> number of the parameter in glibc, and its value here.
    "MALLOC_MMAP_MAX_": (-4, 0),
    "MALLOC_TRIM_THRESHOLD_": (-1, 2**31 - 1),
    "MALLOC_TOP_PAD_": (-2, 2**26),
}


def keep_freed_memory() -> bool:
    """Let this process, and those it starts, keep freed memory for later tensors.

    Return whether the setting was made; ``False`` where the C library is not glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    for name, (parameter, value) in _SETTINGS.items():
        os.environ.setdefault(name, str(value))  # a setting of the user takes precedence
        if not ctypes.CDLL(None).mallopt(parameter, int(os.environ[name])):
            raise OSError(f"glibc refused {name}={os.environ[name]}.")
    return True
