"""What this adapter relies on beyond verl's documented interfaces."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from gem_core.errors import GemError
from gem_core.trainers import require
from gem_verl import TRAINER

require(TRAINER)  # an untested verl or Python stops here, with the command that helps


def hand_over_values(prefix: str, estimate: Callable[[Any, str, Any], Any]) -> None:
    """Wrap verl's advantage call so that estimators named ``prefix...`` get the critic's values.

    verl 0.9 gives them to its own "gae" alone. End of this shim: when it passes them on. Without a
    critic, and for all other estimators, the call stays verl's own. Idempotent.
    """
    from verl.trainer.ppo.v1 import trainer_base

    original = trainer_base.compute_advantage_for_multi_trajectories
    if getattr(original, "gem_core", False):
        return
    if list(inspect.signature(original).parameters)[:3] != ["data", "batch_keys", "adv_estimator"]:
        raise GemError(f"verl's advantage call has changed; tested: verl {TRAINER.tested_range}.")

    def compute(data: Any, batch_keys: Any, adv_estimator: Any, **settings: Any) -> Any:
        if not str(adv_estimator).startswith(prefix) or "values" not in data.batch:
            return original(data, batch_keys, adv_estimator, **settings)
        found = estimate(data, adv_estimator, settings["config"])
        data.batch["advantages"], data.batch["returns"] = found
        return data

    compute.gem_core = True  # type: ignore[attr-defined]
    trainer_base.compute_advantage_for_multi_trajectories = compute
