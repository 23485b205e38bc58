"""Stop a run whose loss or gradient is not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gem_core.errors import GemError

CHECKED = ("loss/policy", "loss/value", "grad_norm", "grad_norm/critic")
"""Common metrics that must be finite."""


def require_finite(step: int, metrics: Mapping[str, float]) -> None:
    """Check the losses and the norm of the gradient of training step ``step``.

    Raises:
        GemError: one of them is not finite. A norm below 0 is what DeepSpeed reports for one that
            is not.
    """
    for name in CHECKED:
        value = metrics.get(name, 0.0)
        if not math.isfinite(value) or (name.startswith("grad_norm") and value < 0):
            raise GemError(
                f"{name} is {value} in step {step}: lower algorithm.lr, and look at the "
                "last lines of metrics.jsonl for where it began."
            )
