"""What OpenRLHF's adapter itself makes of a recipe, beside the native configuration."""

from __future__ import annotations

import os

from gem_openrlhf.cpu import harness
from gem_openrlhf.rollout import dataset_rows


def built(recipe, model_dir):
    """The prompt rows, and what decides in which dtype the processes of a CPU train."""
    before = os.environ.get(harness.FLOAT32_VARIABLE)
    harness.choose_dtype(recipe)
    seen = {
        "train": dataset_rows(recipe, "train"),
        "eval": dataset_rows(recipe, "eval"),
        "dtype": os.environ[harness.FLOAT32_VARIABLE] if recipe.hardware.device == "cpu" else None,
    }
    if before is None:
        del os.environ[harness.FLOAT32_VARIABLE]
    else:
        os.environ[harness.FLOAT32_VARIABLE] = before
    return seen
