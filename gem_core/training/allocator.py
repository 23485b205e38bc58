"""Memory that stays: on a CPU, torch's large tensors come and go by the hundred in every step.

glibc gives each block above a threshold pages of its own and takes them away when it is freed, so
every tensor of a few megabytes costs thousands of page faults. Kept memory made a training step of
the tiny profile 2.7 times as fast (`benchmarks/allocator`).
"""

from __future__ import annotations

import ctypes
import os
import platform

_SETTINGS = {
    # glibc's name and number of the parameter, and what it is set to.
    "MALLOC_MMAP_MAX_": (-4, 0),
    "MALLOC_TRIM_THRESHOLD_": (-1, 2**31 - 1),
    "MALLOC_TOP_PAD_": (-2, 2**26),
}


def keep_freed_memory() -> bool:
    """Let this process, and those it starts, keep freed memory for the next tensors.

    Returns:
        False where the C library is not glibc; nothing is changed there.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    for name, (parameter, value) in _SETTINGS.items():
        os.environ.setdefault(name, str(value))  # the user's own setting wins, here too
        if not ctypes.CDLL(None).mallopt(parameter, int(os.environ[name])):
            raise OSError(f"glibc refused {name}={os.environ[name]}.")
    return True
