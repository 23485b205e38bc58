"""Threads that wait politely: on a CPU, an idle torch thread spins by default and burns its core.

Torch splits each operation of a tiny model over OpenMP threads that wait for each other hundreds of
times a second. While other processes want the cores too (a trainer's own workers, a second run),
spinning takes the time from those who would end the wait; sleeping gives it to them.
"""

from __future__ import annotations

import os


def wait_passively() -> None:
    """Let the OpenMP threads of this process, and of those it starts, sleep while they wait.

    Call it before torch is first imported: OpenMP reads the setting once. The user's own
    ``OMP_WAIT_POLICY`` wins.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
