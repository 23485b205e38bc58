"""Limit how long idle OpenMP threads spin: by default, a waiting torch thread occupies its core.

Torch splits each operation of a tiny model over OpenMP threads that wait for each other hundreds of
times a second. While other processes need the cores too (a trainer's own workers, a second run),
spinning takes time from the very threads that are waited for; sleeping leaves it to them. On an
idle machine, sleeping at once would cost more than a short spin.
"""

from __future__ import annotations

import os

_SPINS = 20_000
"""Iterations of GNU OpenMP before a waiting thread sleeps; its own default is 300,000."""


def limit_openmp_spin() -> None:
    """Let the waiting OpenMP threads of this process, and of those it starts, sleep soon.

    Call it before torch is first imported: OpenMP reads the setting once. ``OMP_WAIT_POLICY`` and
    ``GOMP_SPINCOUNT`` of the user's environment take precedence.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPINS))
