"""Checkpoints of RL2's workers: weights, Adam's moments and the schedule come back."""

from __future__ import annotations

import pytest
import torch
from RL2.utils import checkpointing

from gem_core.training.tiny import model_path
from gem_parity.frozen import frozen_episodes
from gem_replays.rl2 import batch as pack
from gem_rl2 import _compat, worker
from gem_rl2.advantages import Advantages
from gem_rl2.config import native_config


@pytest.fixture
def recipe(tiny):
    return tiny("algorithm.lr_schedule=cosine", "train.steps=10", "algorithm.epochs=2")


@pytest.fixture
def trainer(recipe, process_group, tmp_path, monkeypatch):
    """``trainer()``: what RL2's checkpoint functions want of its trainer, with a fresh actor."""
    import wandb

    monkeypatch.setattr(wandb, "log", lambda *args, **kwargs: None)
    _compat.patch_rl2("float32")

    def build():
        settings = {"actor.model_name": model_path(recipe), "trainer.save_dir": str(tmp_path)}
        config = native_config(recipe, settings)
        config.trainer.save_freq = 1
        config.trainer.load_ckpt_from = "latest"
        made = object.__new__(worker.PPOTrainer)  # without the engines that its __init__ starts
        made.config = config
        made.train_dataloader = worker.StepLoader([[]])
        made.actor = worker.Actor(config.actor, True)
        made.actor.scheduler = made.prepare_scheduler(made.actor)
        return made

    return build


def update(made, recipe, step):
    episodes = frozen_episodes(8)
    tensors, cu_seqs = pack(episodes)
    Advantages(recipe, episodes)(None, tensors, cu_seqs, step)
    made.actor.update(tensors, step)


def weights(made):
    return [p.detach().clone() for p in made.actor.model.parameters()]


def test_a_resumed_run_continues_exactly(trainer, recipe, tmp_path):
    first = trainer()
    update(first, recipe, 1)
    checkpointing.save_ckpt(first, (first.actor, None), 1)
    update(first, recipe, 2)
    second = trainer()
    assert checkpointing.load_ckpt(second, (second.actor, None)) == 1
    assert second.actor.optimizer.param_groups[0]["betas"] == (0.9, 0.95)
    update(second, recipe, 2)
    for mine, theirs in zip(weights(second), weights(first), strict=True):
        assert torch.equal(mine, theirs)
    lr = first.actor.scheduler.get_last_lr()
    assert second.actor.scheduler.get_last_lr() == lr != [recipe.algorithm.lr]


def test_old_checkpoints_are_deleted_and_a_killed_save_is_not_one(trainer, recipe, tmp_path):
    made = trainer()
    for step in (1, 2, 3, 9):
        checkpointing.save_ckpt(made, (made.actor, None), step)
    (tmp_path / "step9" / ".metadata").unlink()  # torch writes it last
    _compat.prune_checkpoints(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.glob("step*")) == ["step2", "step3"]
    assert checkpointing.load_ckpt(trainer(), (made.actor, None)) == 3


def test_several_passes_have_a_ratio(trainer, recipe):
    """The second pass must start from the log-probs before the first, or its ratio would be 1."""
    made = trainer()
    old_logps = []
    forward = made.actor.forward

    def spy(batch, **kwargs):
        old_logps.append(batch.get("old_logps"))
        return forward(batch, **kwargs)

    made.actor.forward = spy
    update(made, recipe, 1)
    inference, first, second = old_logps
    assert inference is None and torch.equal(first, second) and bool(first.any())
