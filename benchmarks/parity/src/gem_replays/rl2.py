"""Frozen episodes through RL2: its tensors, its data layout, forward pass, loss and backward pass.

Only generation is left out (the episodes were played before). The gradient is taken where RL2 would
clip it.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from gem_adapters.support import require_support
from gem_core.episodes.data import Episode
from gem_core.runs.recipe.recipe import Recipe
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import OnStep
from gem_parity.replay import Replay, Row
from gem_parity.traits import Traits
from gem_rl2.cpu import enable

if TYPE_CHECKING:
    from gem_rl2.support import Sets

TRAITS = Traits(kl_mean="tokens", divided="trained episodes")
"""RL2's KL term is a mean over tokens always. An episode that failed is no row of its batch."""


def replay(recipe: Recipe, episodes: Sequence[Episode], model_dir: str) -> Replay:
    """Run RL2's actor update on ``episodes``; see `gem_parity.replay.Replay`.

    Args:
        recipe: the experiment.
        episodes: frozen episodes, groups adjacent.
        model_dir: a causal LM; no tokenizer is needed.
    """
    enable()
    if not dist.is_initialized():
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    from gem_rl2.advantages import Advantages
    from gem_rl2.support import Sets

    actor, logged = _actor(recipe, model_dir)
    actor.updates.algorithm = recipe.algorithm
    if recipe.sampling.support == "drawn":
        require_support(episodes)
        actor.sets = Sets()
    tensors, cu_seqs = batch(episodes, sets=actor.sets)
    Advantages(recipe, episodes)(None, tensors, cu_seqs, 1)
    actor.update(tensors, 1)
    return Replay(_rows(tensors, cu_seqs), logged["actor/loss"][0], actor.gradients)


def replay_run(
    recipe: Recipe, batches: Sequence[FrozenBatch], model_dir: str, on_step: OnStep
) -> None:
    """Train RL2 on a recorded run; see `gem_parity.teacher_forced`.

    Args:
        recipe: the experiment.
        batches: one per training step.
        model_dir: the initial policy.
        on_step: is called before the first step and after every one.
    """
    enable()
    if not dist.is_initialized():
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    from gem_replays.rl2_run import train

    with tempfile.TemporaryDirectory() as folder:
        train(recipe, batches, model_dir, on_step, folder)


def batch(
    episodes: Sequence[Episode],
    finals: Sequence[list[int]] | None = None,
    sets: Sets | None = None,
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """What RL2's ``Rollout`` makes of episodes: tensors [rows, tokens], and offsets [E + 1].

    Args:
        episodes: as they were played.
        finals: with a critic, the final state of each, see ``EpisodeMachine.bootstrap_state``.
        sets: keeps the tokens that could be drawn.
    """
    from RL2.datasets import pack_tensor_dicts

    from gem_rl2.support import to_tensors

    ends = finals or [[]] * len(episodes)
    sequences = []
    counts = [0]
    for episode, final in zip(episodes, ends, strict=True):
        of_episode = to_tensors(episode, final, sets)
        sequences += of_episode
        counts.append(len(of_episode))
    return pack_tensor_dicts(sequences), torch.tensor(counts).cumsum(0)


def _actor(recipe: Recipe, model_dir: str) -> tuple[Any, dict[str, list[float]]]:
    """RL2's actor that keeps its gradient instead of taking a step, and what it logs."""
    import RL2.workers.base
    import wandb

    from gem_rl2 import _compat, worker
    from gem_rl2.config import native_config

    class Actor(worker.Actor):
        gradients: dict[str, np.ndarray]

        def optimizer_step(self) -> float:
            self.gradients = gradients(self.model)
            return 0.0

    class NoTokenizer:
        @staticmethod
        def from_pretrained(*args: Any, **kwargs: Any) -> None:
            return None

    logged: dict[str, list[float]] = defaultdict(list)

    def log(metrics: Mapping[str, float], step: int | None = None) -> None:
        for name, value in metrics.items():
            logged[name].append(value)

    wandb.log = log
    config = native_config(recipe, {"actor.model_name": model_dir})
    _compat.patch_rl2("float32")
    original = RL2.workers.base.AutoTokenizer
    RL2.workers.base.AutoTokenizer = NoTokenizer  # the frozen batch has ids, no text
    try:
        return Actor(config.actor, True), logged
    finally:
        RL2.workers.base.AutoTokenizer = original


def gradients(model: Any) -> dict[str, np.ndarray]:
    """Gradient of each original parameter out of FSDP's flat ones (one rank)."""
    names = {
        id(module): name.replace("_fsdp_wrapped_module", "").replace("..", ".").strip(".")
        for name, module in model.named_modules()
    }
    by_name = {}
    for handle in model._all_handles:
        flat = handle.flat_param
        parts = flat.grad.detach().double().split(list(flat._numels))
        for info, shape, part in zip(flat._param_infos, flat._shapes, parts, strict=True):
            name = f"{names[id(info.module)]}.{info.param_name}"
            by_name[name] = part.reshape(shape).numpy().copy()
    return by_name


def _rows(tensors: dict[str, torch.Tensor], cu_seqs: torch.Tensor) -> list[Row]:
    """The sequences as RL2's loss saw them, padding removed and its shift undone."""
    rows = []
    for number, (first, last) in enumerate(pairwise(cu_seqs.tolist())):
        for index in range(first, last):
            row = {key: tensor[index].tolist() for key, tensor in tensors.items()}
            length = row["eos_mask"].index(1) + 1
            rows.append(
                Row(
                    episode=number,
                    token_ids=[*row["states"][:length], row["actions"][length - 1]],
                    loss_mask=[0, *row["action_mask"][:length]],
                    advantages=np.array([0.0, *row["advantages"][:length]]),
                )
            )
    return rows
