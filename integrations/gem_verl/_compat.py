"""What this adapter relies on beyond verl's documented interfaces."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from gem_core.errors import GemError
from gem_core.training.trainers import require
from gem_verl import TRAINER

require(TRAINER)  # an untested verl or Python stops here, with the command that helps

PREFIX = "gem_"
"""What gem-core's estimators are called in verl."""


@cache
def hand_over_values() -> None:
    """Wrap verl's advantage call so that gem-core's estimators get the critic's values.

    verl 0.9 gives them to its own "gae" alone. End of this shim: when it passes them on. Without a
    critic, and for all other estimators, the call stays verl's own.
    Once per process.
    """
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn
    from verl.trainer.ppo.v1 import trainer_base

    original = trainer_base.compute_advantage_for_multi_trajectories
    if list(inspect.signature(original).parameters)[:3] != ["data", "batch_keys", "adv_estimator"]:
        raise GemError(f"verl's advantage call has changed; tested: verl {TRAINER.tested_range}.")

    def compute(data: Any, batch_keys: Any, adv_estimator: Any, **settings: Any) -> Any:
        batch, uids = data.batch, data.non_tensor_batch.get("uid")
        if not str(adv_estimator).startswith(PREFIX) or "values" not in batch:
            return original(data, batch_keys, adv_estimator, **settings)
        given = {k: batch[k] for k in ("token_level_rewards", "response_mask", "values")}
        found = get_adv_estimator_fn(adv_estimator)(config=settings["config"], index=uids, **given)
        batch["advantages"], batch["returns"] = found
        return data

    trainer_base.compute_advantage_for_multi_trajectories = compute
