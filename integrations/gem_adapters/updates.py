"""Find updates whose gradient was not finite in trainers that use DeepSpeed.

DeepSpeed skips such an update (bfloat16, ZeRO-2) or makes it (float32, ZeRO-3), and reports a
finite norm for both: it replaces a group's norm by -1 and then adds squares. The adapters report
NaN instead, on which `gem_adapters.loss_checks.require_finite` stops the run.
"""

from __future__ import annotations

from typing import Any


def updates_were_finite(engine: Any, skipped: int) -> bool:
    """Return whether DeepSpeed skipped no further update, and left all weights finite.

    Args:
        engine: DeepSpeed's engine; of weights that it spreads over ranks (ZeRO-3), the part of this
            rank is checked.
        skipped: its count of skipped updates before.
    """
    if engine.skipped_steps > skipped:
        return False
    weights = (getattr(weight, "ds_tensor", weight) for weight in engine.module.parameters())
    return all(bool(weight.data.isfinite().all()) for weight in weights)
