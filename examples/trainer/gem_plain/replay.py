"""The replay of frozen episodes and recorded runs, for `gem-core conform`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gem_adapters.estimate import estimate
from gem_adapters.turn_batch import turn_batch
from gem_core.episodes.data import Episode
from gem_core.policies.models.weights import load_model
from gem_core.runs.recipe.recipe import Recipe
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import OnStep, StepTrace, TracedRow
from gem_parity.replay import Replay, Row
from gem_parity.traits import Traits
from gem_plain.config import translate
from gem_plain.learner import Learner
from gem_plain.rows import Rows, make_rows

TRAITS = Traits()
"""It does everything as a recipe means it."""


def replay(recipe: Recipe, episodes: Sequence[Episode], model_dir: str) -> Replay:
    """Return rows, loss and gradient of the first update on ``episodes``, before clipping."""
    learner = _learner(recipe, model_dir)
    rows = _rows(recipe, episodes)
    new, _ = learner.logprobs(rows.ids)
    loss = learner.loss(new, new.detach(), rows.advantages, rows.mask)
    loss.backward()
    gradients = {name: _array(p.grad) for name, p in learner.model.named_parameters()}
    found = [
        Row(number, traced.token_ids, traced.mask, traced.advantages)
        for number, traced in zip(rows.episodes, _traced(rows, episodes), strict=True)
    ]
    return Replay(found, loss.item(), gradients)


def replay_run(
    recipe: Recipe, batches: Sequence[FrozenBatch], model_dir: str, on_step: OnStep
) -> None:
    """Train on a recorded run; ``on_step`` is called before the first step and after every one."""
    learner = _learner(recipe, model_dir)
    on_step(0, StepTrace(_weights(learner)))
    for done, batch in enumerate(batches, start=1):
        rows = _rows(recipe, batch.episodes)
        with torch.no_grad():
            old = learner.logprobs(rows.ids)[0].double().numpy()
        learner.learn(rows, len(batch.episodes))
        parts = learner.minibatches(rows, len(batch.episodes))
        units = [[(number, None) for number in {rows.episodes[r] for r in p}] for p in parts]
        traced = _traced(rows, batch.episodes, old)
        on_step(done, StepTrace(_weights(learner), minibatches=units, rows=traced))


def _learner(recipe: Recipe, model_dir: str) -> Learner:
    model = load_model(model_dir)
    return Learner(model, translate(recipe))


def _rows(recipe: Recipe, episodes: Sequence[Episode]) -> Rows:
    return make_rows(episodes, estimate(turn_batch(episodes), recipe.algorithm).advantages)


def _traced(
    rows: Rows, episodes: Sequence[Episode], old: np.ndarray | None = None
) -> list[TracedRow]:
    """Return the rows as the loss has them, without padding."""
    segments = [segment for episode in episodes for segment in episode.segments]
    lengths = [len(segment.token_ids) for segment in segments]
    return [
        TracedRow(
            rows.ids[row, :length].tolist(),
            rows.mask[row, :length].int().tolist(),
            rows.advantages[row, :length].double().numpy(),
            None if old is None else old[row, :length],
        )
        for row, length in enumerate(lengths)
    ]


def _weights(learner: Learner) -> dict[str, np.ndarray]:
    return {name: _array(weight) for name, weight in learner.model.named_parameters()}


def _array(tensor: Any) -> np.ndarray:
    array: np.ndarray = tensor.detach().double().numpy().copy()
    return array
