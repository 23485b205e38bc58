"""Frozen episodes through the real package: rows, loss and gradient of the first update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from gem_core.episodes.data import Episode
from gem_core.parity.replay import Replay, Row
from gem_core.training.recipe import Recipe
from gem_openrlhf.cpu.in_process import InProcess


def replay(recipe: Recipe, episodes: Sequence[Episode], model_dir: str) -> Replay:
    """Replay the first optimizer step on ``episodes``, as one minibatch; see gem_core.parity."""
    one_update = replace(recipe.algorithm, epochs=1, minibatches=1)
    trainer = InProcess(replace(recipe, algorithm=one_update), model_dir)
    experiences = trainer.experiences(episodes)
    rows: list[Row] = []
    for experience in experiences:
        for position in range(len(experience.sequences)):
            rows.append(_row(len(rows), experience, position))
    status = trainer.train(experiences)
    (gradients,) = trainer.steps
    return Replay(rows, status["policy_loss"], gradients)


def _row(number: int, experience: Any, position: int) -> Row:
    """Return row ``position`` of an experience, as row ``number`` of the batch.

    Index i of the per-action tensors is token i + 1; the first token is never trained.
    """
    length = int(experience.attention_mask[position].sum())
    token_ids = experience.sequences[position][:length].tolist()
    loss_mask = [0, *experience.action_mask[position][: length - 1].tolist()]
    advantages = experience.advantages[position][: length - 1].double().numpy()
    return Row(number, token_ids, loss_mask, np.concatenate([[0.0], advantages]))
