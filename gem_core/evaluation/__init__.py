"""Evaluation of a model, with the same sampler and the same tasks for every trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.evaluation.stats import wilson

__all__ = ["evaluate", "wilson"]

if TYPE_CHECKING:
    from gem_core.evaluation.local import evaluate


def __getattr__(name: str) -> object:
    """Import the evaluator, and with it torch, on first use."""
    if name == "evaluate":
        from gem_core.evaluation.local import evaluate

        return evaluate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
