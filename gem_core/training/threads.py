"""Threads that wait politely: on a CPU, an idle torch thread spins by default and burns its core.

Torch splits each operation of a tiny model over OpenMP threads that wait for each other hundreds of
times a second. While other processes want the cores too (a trainer's own workers, a second run),
spinning takes the time from those who would end the wait; sleeping gives it to them. On a machine
with nothing else to do, going to sleep at once would cost more than a short spin.
"""

from __future__ import annotations

import os

#: Rounds of GNU's OpenMP before a waiting thread sleeps; its own default is 300,000.
_SPINS = 20_000


def limit_openmp_spin() -> None:
    """Let the OpenMP threads of this process, and of those it starts, soon sleep while they wait.

    Call it before torch is first imported: OpenMP reads the setting once. The user's own
    ``OMP_WAIT_POLICY`` or ``GOMP_SPINCOUNT`` wins.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPINS))
