"""The TRL that this adapter was written against, checked when the adapter is imported."""

from __future__ import annotations

import inspect
import os

from gem_core.errors import MissingDependencyError
from gem_core.runs.trainers import require
from gem_trl import TRAINER

require(TRAINER)
# At each start TRL warns that `rollout_func` is experimental; the check below guards it instead.
# To be removed when TRL declares `rollout_func` stable.
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from trl import GRPOConfig, GRPOTrainer  # noqa: E402

__all__ = ["GRPOConfig", "GRPOTrainer", "check_private_signatures"]

PRIVATE_SIGNATURES = {
    "_generate_and_score_completions": "self inputs",
    "_generate_single_turn": (
        "self prompt_ids images multimodal_fields num_generations has_tool_images"
    ),
    "_build_accelerator_args": "self kwargs",
}
"""Private methods that the adapter overrides or calls, with their parameters in TRL 1.16."""


def check_private_signatures(trainer: type = GRPOTrainer) -> None:
    """Check the private methods that the adapter relies on.

    Args:
        trainer: the class that has them.

    Raises:
        MissingDependencyError: a method is gone, or does not take what it took.
    """
    for name, expected in PRIVATE_SIGNATURES.items():
        method = getattr(trainer, name, None)
        parameters = " ".join(inspect.signature(method).parameters) if method else "nothing"
        if parameters != expected:
            raise MissingDependencyError(
                f"GRPOTrainer.{name} takes ({parameters}), not ({expected}): install a TRL that "
                f"was tested, trl{TRAINER.tested_range}."
            )


check_private_signatures()
