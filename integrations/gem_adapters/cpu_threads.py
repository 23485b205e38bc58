"""How many threads torch takes in each process of a run on a CPU."""

from __future__ import annotations

import os

from gem_core.runs.recipe.recipe import Recipe

VARIABLE = "OMP_NUM_THREADS"
"""The environment variable that torch reads them from."""


def cpu_threads(recipe: Recipe) -> int:
    """Return the threads of torch in each process of a run.

    The matrices of the tiny model are too small to share out: one. For any other model the user's
    `VARIABLE` says it, and otherwise the ranks share the cores that this process may use: trainer
    and engine compute in turn, so that each takes all of its rank's.
    """
    if recipe.model.path == "tiny":
        return 1
    chosen = os.environ.get(VARIABLE, "")
    if chosen.isdecimal() and int(chosen) > 0:
        return int(chosen)
    return max(1, len(os.sched_getaffinity(0)) // recipe.hardware.gpus_per_node)
