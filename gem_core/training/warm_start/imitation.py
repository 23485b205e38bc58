"""What a warm start imitates, and how."""

from __future__ import annotations

from typing import NamedTuple

from gem_core.runs.recipe.recipe import Recipe

_TINY_WARMUP = 20
"""Steps over which the tiny model's learning rate rises."""


class Imitation(NamedTuple):
    """A warm start.

    Attributes:
        teacher: scripted player that is imitated.
        habit: player whose actions replace the teacher's in ``noise`` of the turns.
        noise: probability of that, per turn.
        steps: optimizer steps; 0 = no warm start.
        batch: episodes per step.
        lr: peak learning rate.
        warmup: steps over which it rises.
        dtype: precision of the products, ``float32`` or ``bfloat16``; weights are float32.
        longest: tokens that an action may have.
        micro_batch: sequences per forward pass, ``None`` = all of a step.
    """

    teacher: str
    habit: str
    noise: float
    steps: int
    batch: int
    lr: float
    warmup: int
    dtype: str
    longest: int
    micro_batch: int | None = None


def imitation_of(recipe: Recipe) -> Imitation:
    """Return the warm start of a recipe's model."""
    if recipe.model.path == "tiny":
        tiny = recipe.model.tiny
        return Imitation(
            teacher=tiny.teacher,
            habit=tiny.habit,
            noise=tiny.expert_noise,
            steps=tiny.warm_start_steps,
            batch=tiny.warm_start_batch,
            lr=tiny.warm_start_lr,
            warmup=_TINY_WARMUP,
            dtype="float32",
            longest=tiny.max_positions,
        )
    start = recipe.model.warm_start
    return Imitation(
        teacher=start.teacher,
        habit=start.habit,
        noise=start.noise,
        steps=start.steps,
        batch=start.batch,
        lr=start.lr,
        warmup=start.warmup,
        dtype=recipe.model.dtype,
        longest=recipe.limits.max_tokens_per_turn,
        micro_batch=recipe.batch.micro_batch,
    )
