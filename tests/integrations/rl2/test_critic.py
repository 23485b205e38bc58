"""RL2's own critic, as the adapter trains it: without noise, where it is read, and what it logs."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
import torch.distributed as dist
from torch.optim.lr_scheduler import ConstantLR

from gem_core.training.tiny import model_path
from gem_parity.frozen import frozen_episodes
from gem_replays.rl2 import batch
from gem_rl2 import _compat
from gem_rl2.config import native_config
from gem_rl2.cpu import enable


@pytest.fixture
def critic(tiny, monkeypatch):
    """RL2's critic of the tiny model, the recipe, and what RL2 logs."""
    enable()  # before RL2's workers are imported
    import wandb

    from gem_rl2 import worker

    if not dist.is_initialized():
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    recipe = tiny("algorithm.estimator=gae", "algorithm.epochs=1")
    logged = defaultdict(list)

    def log(metrics, step=None):
        for name, value in metrics.items():
            logged[name].append(value)

    monkeypatch.setattr(wandb, "log", log)
    _compat.patch_rl2("float32")
    path = model_path(recipe)
    config = native_config(recipe, {"actor.model_name": path, "critic.model_name": path})
    torch.manual_seed(0)
    made = worker.Critic(config.critic)
    made.scheduler = ConstantLR(made.optimizer, factor=1.0)
    return made, recipe, logged


def test_the_head_has_no_dropout(critic):
    assert {m.p for m in critic[0].model.modules() if isinstance(m, torch.nn.Dropout)} == {0.0}


def test_it_learns_where_it_is_read_and_logs_that_loss(critic):
    from gem_rl2.advantages import Advantages

    made, recipe, logged = critic
    episodes = frozen_episodes(8, group_size=2)
    tensors, cu_seqs = batch(episodes, [[]] * len(episodes))
    losses = []
    for step in range(12):
        step_tensors = made.compute_values(dict(tensors), step)
        Advantages(recipe, episodes)(None, step_tensors, cu_seqs, 1)
        read = step_tensors["value_mask"].bool()
        step_tensors["returns"] = torch.where(step_tensors["action_mask"].bool(), 0.75, 0.0)
        error = step_tensors["values"][read] - 0.75
        losses.append(float((error**2).mean()))
        made.update(step_tensors, step)
    assert logged["critic/loss"] == pytest.approx(losses, rel=1e-4)
    assert losses[-1] < 0.01 < losses[0]
