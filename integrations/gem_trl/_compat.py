"""The TRL that this adapter was written against, checked when the adapter is imported."""

from __future__ import annotations

import inspect
import os

from gem_core.errors import MissingDependencyError
from gem_core.training.trainers import require
from gem_trl import TRAINER

require(TRAINER)
# At each start TRL warns that `rollout_func` is experimental; the check below guards it instead.
# To be removed when TRL declares `rollout_func` stable.
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from trl import GRPOConfig, GRPOTrainer  # noqa: E402

__all__ = ["GRPOConfig", "GRPOTrainer", "check_private_signatures"]

_TURN = "self prompt_ids images multimodal_fields num_generations has_tool_images"
PRIVATE_SIGNATURES = {
    "_generate_and_score_completions": "self inputs",
    "_generate_single_turn": _TURN,
}
"""Private methods that the adapter overrides or calls, with their parameters in TRL 1.16."""


def check_private_signatures(trainer: type = GRPOTrainer) -> None:
    """Raise MissingDependencyError when a method the adapter relies on is not what it was."""
    for name, expected in PRIVATE_SIGNATURES.items():
        found = " ".join(inspect.signature(getattr(trainer, name)).parameters)
        if found != expected:
            tested = f"install a TRL that was tested, trl{TRAINER.tested_range}"
            raise MissingDependencyError(f"{name} takes ({found}), not ({expected}): {tested}.")


check_private_signatures()
