"""The recipe of a lockstep run: overrides that remove what makes equal trainers differ."""

from __future__ import annotations

STEPS = 20
"""Training steps of a lockstep run, unless told otherwise."""
WHOLE_BATCHES = 1_000_000
"""``train.log_episodes`` beyond every batch: all episodes of a step are written."""
LOCKSTEP = (
    "algorithm.lr_schedule=constant",  # the first steps do not depend on train.steps
    "model.dtype=float32",
    f"train.log_episodes={WHOLE_BATCHES}",
)
"""Overrides of every recipe whose runs are compared token by token."""


def overrides(steps: int) -> tuple[str, ...]:
    """Return the overrides of a lockstep run of ``steps`` training steps.

    Evaluations before and after training are left out; those inside training are compared too.
    """
    every = max(1, steps // 4)
    return (
        *LOCKSTEP,
        f"train.steps={steps}",
        "train.save_every=0",
        "eval.episodes=0",
        f"eval.every={every}",
        "eval.inside_episodes=32",
    )
