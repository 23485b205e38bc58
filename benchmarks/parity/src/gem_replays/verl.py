"""Frozen episodes through verl: its conversion, advantages, loss, backward pass and one update."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from tensordict import TensorDict

from gem_adapters.support import require_support
from gem_adapters.token_rows import read_labels
from gem_core.episodes.data import Episode
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import Task
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import OnStep
from gem_parity.replay import Replay, Row
from gem_parity.traits import Traits
from gem_verl.cpu.local import LocalActor, tokenizer_dir
from gem_verl.rollout import TurnOutput, to_native

TRAITS = Traits(
    divisor="padded minibatch",
    divided="trained episodes",
    rate_over="batches",
    kl_limit=10.0,
    valued_ends="continued sequences",
)
"""verl's means over sequences count the rows that fill a batch up to equal minibatches; an episode
that failed is no row. A token's KL estimate is cut off at 10. The state in which a limit cut an
episode is valued where it continues the episode's last row."""


def replay(recipe: Recipe, episodes: Sequence[Episode], model_dir: str) -> Replay:
    """Train one update of verl on ``episodes``; see `gem_parity.replay.Replay`.

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
    drawn = recipe.sampling.support == "drawn"
    if drawn:
        require_support(episodes)
    samples = _samples(episodes, drawn=drawn)
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


def replay_run(
    recipe: Recipe, batches: Sequence[FrozenBatch], model_dir: str, on_step: OnStep
) -> None:
    """Train verl on a recorded run; see `gem_parity.teacher_forced`.

    Args:
        recipe: the experiment.
        batches: one per training step.
        model_dir: the initial policy, in float32.
        on_step: is called before the first step and after every one.
    """
    from gem_replays.verl_run import RecordedTrainer

    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(model_dir, Path(folder) / "model")
        tokenizer_dir(str(copy), str(copy))  # each of verl's workers wants a tokenizer there
        trainer = RecordedTrainer(recipe, str(copy))
        on_step(0, trainer.trace())
        for done, batch in enumerate(batches, start=1):
            states = {}
            if trainer.critic is not None:
                states = {machine.index: machine.bootstrap_state() for machine in batch.machines}
            drawn = recipe.sampling.support == "drawn"
            trainer.train(_samples(batch.episodes, states, drawn), batch.episodes)
            on_step(done, trainer.trace())


def _samples(
    episodes: Sequence[Episode],
    states: Mapping[int, list[int]] | None = None,
    drawn: bool = False,
) -> list[TurnOutput]:
    """Return verl's samples of ``episodes``, in task order.

    Args:
        episodes: frozen.
        states: by number of the episode, the state in which a limit cut it.
        drawn: whether samples have the tokens that could be drawn.
    """
    envs = sorted({episode.env_id for episode in episodes})
    samples = []
    for episode in episodes:
        task = Task(episode.index, envs.index(episode.env_id), episode.seed or 0, episode.group)
        final = (states or {}).get(episode.index, [])
        samples += to_native(episode, task, [1], [], final=final, drawn=drawn)
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
