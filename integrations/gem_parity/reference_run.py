"""A whole run of the reference: it plays its own episodes, as a trainer does, and learns from them.

It draws with the noise of the CPU engine, so that a trainer of equal weights draws equal tokens.
"""

from __future__ import annotations

import torch
from msgspec.structs import asdict
from transformers import AutoTokenizer

from gem_core.episodes.data import Episode
from gem_core.episodes.rollout import play_batch
from gem_core.policies.engine.policy import HFPolicy
from gem_core.policies.models.weights import load_model
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory, step_tasks
from gem_core.training.tiny import model_path
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import StepTrace, Unit
from gem_parity.reference_trainer import ReferenceTrainer
from gem_parity.traits import Traits

STANDARD = Traits()
"""What a recipe means."""


def reference_run(recipe: Recipe, traits: Traits = STANDARD) -> dict[int, dict[int, Episode]]:
    """Train ``recipe`` with the reference; return the episodes by step (from 1) and task.

    Args:
        recipe: the experiment, with one minibatch, as trainers divide a batch in their own ways,
            and an estimator without a critic.
        traits: what the trainer's update does in its own way.

    Raises:
        ValueError: it has several minibatches.
    """
    if recipe.algorithm.minibatches != 1:
        raise ValueError(f"{recipe.algorithm.minibatches} minibatches: their order is a trainer's.")
    folder = model_path(recipe)
    reference = ReferenceTrainer(recipe, folder, traits, {})
    model = load_model(folder)
    factory = MachineFactory(recipe, AutoTokenizer.from_pretrained(folder))
    policy = HFPolicy(model, factory.stop_ids, **asdict(recipe.sampling))
    whole: list[list[Unit]] = [[(number, None) for number in range(recipe.batch.episodes)]]
    run: dict[int, dict[int, Episode]] = {}
    for step in range(recipe.train.steps):
        machines = [factory(task) for task in step_tasks(recipe, step)]
        episodes = play_batch(machines, policy)
        run[step + 1] = {episode.index: episode for episode in episodes}
        trace = StepTrace({}, minibatches=whole * recipe.algorithm.epochs)
        reference.step(FrozenBatch(episodes, machines), trace)
        with torch.no_grad():
            model.load_state_dict(reference.model.state_dict())
    return run
