"""What Oat's adapter itself makes of a recipe, beside the command line."""

from __future__ import annotations

from types import SimpleNamespace

from msgspec.structs import replace

from gem_oat.config import arguments
from gem_oat.cpu import install
from gem_parity.frozen import frozen_episodes

install()  # the modules below import Oat

from gem_oat.learner import GemLearner  # noqa: E402
from gem_oat.loss import loss_weights  # noqa: E402
from gem_oat.rollout import to_native  # noqa: E402

ROWS = [row for number, e in enumerate(frozen_episodes(8)) for row in to_native(e, number, 0)]


def built(recipe, model_dir):
    """Oat's arguments, the weights of its loss, and the rows of a forward pass."""
    learner = SimpleNamespace(
        recipe=recipe, strategy=SimpleNamespace(all_reduce=lambda value, op: value)
    )
    weights = loss_weights([row.row for row in ROWS], recipe.algorithm)
    hardware = replace(recipe.hardware, device="cpu", gpus_per_node=1, engine="default")
    given = arguments(replace(recipe, hardware=hardware))  # Oat counts the GPUs of this machine
    return {
        "scheduler": given.lr_scheduler,
        "modules": given.target_modules,
        "policy": weights.policy.tolist(),
        "most": GemLearner._most_rows(learner, ROWS),
    }
