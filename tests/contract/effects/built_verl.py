"""What verl's adapter itself makes of a recipe, beside the native configuration."""

from __future__ import annotations

from types import SimpleNamespace

from gem_verl.config import payload
from gem_verl.rollout import EVALUATION, TRAIN, TaskDataset


def built(recipe, model_dir):
    """The sizes of the data sets that verl's trainer goes through."""
    config = SimpleNamespace(gem_recipe=payload(recipe))
    return {name: len(TaskDataset([name], config)) for name in (TRAIN, EVALUATION)}
