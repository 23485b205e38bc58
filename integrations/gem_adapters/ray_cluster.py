"""The Ray cluster of a run on several machines, where a trainer starts its processes with Ray."""

from __future__ import annotations

import os

from gem_core.errors import RecipeError
from gem_core.runs.recipe.recipe import Recipe

ADDRESS = "RAY_ADDRESS"
"""Ray's environment variable with the address of a cluster that runs: ``HOST:PORT``, ``auto``."""


def require_cluster(recipe: Recipe) -> None:
    """Check, before anything runs, that a run on several machines says where its Ray cluster is.

    Without the variable Ray would start on this machine alone, and wait there for the others' GPUs.

    Raises:
        RecipeError: `ADDRESS` is not set.
    """
    nodes = recipe.hardware.nodes
    if nodes > 1 and os.environ.get(ADDRESS, "") in ("", "local"):
        raise RecipeError(
            f"hardware.nodes = {nodes}: Ray must run on these machines before, and {ADDRESS} says "
            "where; start it with `ray start` on each of them, and set it to HOST:PORT, or to auto "
            "on one of them."
        )
