"""The replay of frozen episodes and recorded runs, for `gem-core conform`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tensordict import TensorDict
from transformers import AutoTokenizer

from gem_adapters.estimate import estimate
from gem_adapters.turn_batch import turn_batch
from gem_core.episodes.data import Episode
from gem_core.policies.models.weights import load_model
from gem_core.runs.recipe.recipe import Recipe
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import OnStep, StepTrace, TracedRow
from gem_parity.replay import Replay, Row
from gem_parity.traits import Traits
from torchrl_trainer.config import translate
from torchrl_trainer.rows import OLD, PRESENT, TOKENS, TRAINED, make_rows
from torchrl_trainer.update import Update

TRAITS = Traits(kl_mean="tokens")
"""GRPOLoss's mean of the KL knows no aggregation."""


def replay(recipe: Recipe, episodes: Sequence[Episode], model_dir: str) -> Replay:
    """Return rows, loss and gradient of the first update on ``episodes``, before clipping."""
    update = _update(recipe, model_dir)
    rows = update.prepare(_rows(recipe, episodes))
    part = rows[rows[TRAINED].any(1)]
    update.stepper.weigh_kl(part)
    losses = update.trainer.compute_loss(part)
    sum(loss for name, loss in losses.items() if name.startswith("loss")).backward()
    gradients = {name: _array(p.grad) for name, p in update.model.named_parameters()}
    found = [
        Row(number, traced.token_ids, traced.mask, traced.advantages)
        for number, traced in zip(part["episode"].tolist(), _traced(part), strict=True)
    ]
    return Replay(found, losses.get("loss_objective").item(), gradients)


def replay_run(
    recipe: Recipe, batches: Sequence[FrozenBatch], model_dir: str, on_step: OnStep
) -> None:
    """Train on a recorded run; ``on_step`` is called before the first step and after every one."""
    update = _update(recipe, model_dir)
    on_step(0, StepTrace(_weights(update)))
    for done, batch in enumerate(batches, start=1):
        rows = _rows(recipe, batch.episodes)
        update.trainer.optim_steps(rows)
        episode = rows["episode"].tolist()
        units = [[(n, None) for n in {episode[r] for r in p}] for p in update.minibatches]
        on_step(done, StepTrace(_weights(update), minibatches=units, rows=_traced(rows)))


def _update(recipe: Recipe, model_dir: str) -> Update:
    def load() -> Any:
        return load_model(model_dir)

    initial = load() if recipe.algorithm.kl_coef else None
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    return Update(load(), tokenizer, translate(recipe), initial=initial, collector=None)


def _rows(recipe: Recipe, episodes: Sequence[Episode]) -> TensorDict:
    return make_rows(episodes, estimate(turn_batch(episodes), recipe.algorithm).advantages)


def _traced(rows: TensorDict) -> list[TracedRow]:
    """Return the rows as the loss has them, without padding."""
    return [
        TracedRow(
            row[TOKENS][row[PRESENT]].tolist(),
            row[TRAINED][row[PRESENT]].int().tolist(),
            _array(row["advantage"][row[PRESENT], 0]),
            _array(row[OLD][row[PRESENT]]),
        )
        for row in rows.unbind(0)
    ]


def _weights(update: Update) -> dict[str, np.ndarray]:
    return {name: _array(weight) for name, weight in update.model.named_parameters()}


def _array(tensor: Any) -> np.ndarray:
    array: np.ndarray = tensor.detach().double().numpy().copy()
    return array
