"""Frozen episodes through the real package: rows, loss and gradient of the first update."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np

from gem_core.episodes.data import Episode
from gem_core.parity.replay import Replay, Row
from gem_core.training.recipe import Recipe
from gem_openrlhf.cpu.in_process import InProcess


def replay(recipe: Recipe, episodes: Sequence[Episode], model_dir: str) -> Replay:
    """Replay the first optimizer step on ``episodes``, as one minibatch; see gem_core.parity."""
    once = msgspec.structs.replace(recipe.algorithm, epochs=1, minibatches=1)
    trainer = InProcess(msgspec.structs.replace(recipe, algorithm=once), model_dir)
    experiences = trainer.experiences(episodes)
    rows = []
    position = itertools.count()
    for e in experiences:
        for ids, seen, mask, advantages in zip(
            e.sequences, e.attention_mask, e.action_mask, e.advantages, strict=True
        ):
            length = int(seen.sum())
            # Index i of the per-action tensors is token i + 1; the first token is never trained.
            rows.append(
                Row(
                    next(position),
                    ids[:length].tolist(),
                    [0, *mask[: length - 1].tolist()],
                    np.concatenate([[0.0], advantages[: length - 1].double().numpy()]),
                )
            )
    status = trainer.train(experiences)
    (gradients,) = trainer.steps
    return Replay(rows, status["policy_loss"], gradients)
