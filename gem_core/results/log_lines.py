"""Lines of a run's log that pages show, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gem_core.runs.recipe.recipe import Recipe


def training_in_words(recipe: Recipe, trainer: str, path: Path) -> str:
    """Return the line with which training begins."""
    return f"Training {recipe.name} with {trainer} for {recipe.train.steps} steps into {path}"


def evaluation_in_words(when: str, metrics: Mapping[str, float], engine: str) -> str:
    """Return the line that has the success of an evaluation."""
    low, high = metrics["success/low"], metrics["success/high"]
    return (
        f"{when.capitalize()}: success {metrics['success/mean']:.3f} [{low:.3f}, {high:.3f}] on "
        f"{metrics['episodes']:.0f} evaluation episodes, by {engine}"
    )
