"""Frozen episodes through verl: its conversion, advantages, loss, backward pass and one update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from tensordict import TensorDict

from gem_core.adapters.token_rows import read_labels
from gem_core.episodes.data import Episode
from gem_core.parity.replay import Replay, Row
from gem_core.training.recipe import Recipe
from gem_core.training.tasks import Task
from gem_verl.cpu.local import LocalActor
from gem_verl.rollout import TurnOutput, to_native


def replay(recipe: Recipe, episodes: Sequence[Episode], model_dir: str) -> Replay:
    """Train one update of verl on ``episodes``; see `gem_core.parity.replay.Replay`.

    Args:
        recipe: the experiment; its batch must have as many episodes.
        episodes: frozen.
        model_dir: a causal LM in float32; without a tokenizer beside it ids 0 and 1 pad and stop.
    """
    recipe = replace(
        recipe,
        train=replace(recipe.train, steps=1),
        algorithm=replace(recipe.algorithm, epochs=1, minibatches=1),
    )
    actor = LocalActor(recipe, model_dir)
    samples = _samples(episodes)
    batch = actor.prepare(samples)
    gradients: dict[str, np.ndarray] = {}
    step = actor.engine.optimizer_step

    def captured() -> Any:
        gradients.update(_gradients(actor.engine.module))
        return step()

    actor.engine.optimizer_step = captured
    metrics = actor.update(batch)
    trained = [sample for sample in samples if any(sample.response_mask)]
    return Replay(_rows(batch, trained), float(np.sum(metrics["actor/pg_loss"])), gradients)


def _samples(episodes: Sequence[Episode]) -> list[TurnOutput]:
    """Return verl's samples of ``episodes``, in task order."""
    envs = sorted({episode.env_id for episode in episodes})
    samples = []
    for number, episode in enumerate(episodes):
        task = Task(number, envs.index(episode.env_id), episode.seed or 0, episode.group)
        samples += to_native(episode, task, [1], [])
    return sorted(samples, key=_episode)


def _episode(sample: TurnOutput) -> int:
    (label,) = read_labels([sample.extra_fields["label"]])
    return label.episode


def _gradients(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return the gradients by name, each whole."""
    gradients = {}
    for name, parameter in module.named_parameters():
        gradient = parameter.grad
        if gradient is None:
            continue
        if hasattr(gradient, "full_tensor"):
            gradient = gradient.full_tensor()
        gradients[name] = gradient.detach().double().numpy().copy()
    return gradients


def _rows(batch: TensorDict, samples: Sequence[TurnOutput]) -> list[Row]:
    """Return the sequences as verl's loss saw them."""
    rows = []
    for i, sample in enumerate(samples):
        prompt = batch["prompts"][i].tolist()
        zeros = torch.zeros(len(prompt))
        rows.append(
            Row(
                episode=_episode(sample),
                token_ids=batch["input_ids"][i].tolist(),
                loss_mask=[0] * len(prompt) + batch["response_mask"][i].tolist(),
                advantages=torch.cat([zeros, batch["advantages"][i]]).double().numpy(),
            )
        )
    return rows
