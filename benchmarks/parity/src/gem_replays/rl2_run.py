"""RL2's own training loop over a recorded run; only generation is left out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import RL2.trainer.ppo as ppo
import torch
from RL2.utils import checkpointing, sequences
from tokenizers import Tokenizer, models
from torch.distributed.tensor import DTensor
from transformers import PreTrainedTokenizerFast

from gem_adapters.estimate import needs_critic
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.recipe import Recipe
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import OnStep, StepTrace, TracedRow, Unit, Weights, without_tied
from gem_replays.rl2 import batch as pack
from gem_rl2 import _compat, worker
from gem_rl2.advantages import Advantages, require_installed
from gem_rl2.config import native_config
from gem_rl2.support import Sets


def train(
    recipe: Recipe,
    batches: Sequence[FrozenBatch],
    model_dir: str,
    on_step: OnStep,
    folder: str,
) -> None:
    """Train RL2 on a recorded run.

    Args:
        recipe: the experiment.
        batches: one per training step.
        model_dir: the initial policy.
        on_step: see `gem_parity.recorded.OnStep`.
        folder: an empty directory, for RL2's checkpoint and model.
    """
    source = _with_tokenizer(model_dir, Path(folder) / "source")
    run = RunDir.create(Path(folder) / "run", recipe, "rl2")
    settings = {
        "actor.model_name": source,
        "critic.model_name": source,
        "trainer.save_dir": str(run.checkpoints),
        "trainer.load_ckpt_from": None,
    }
    advantages = Advantages(recipe)
    _compat.patch_rl2(recipe.model.dtype)
    torch.manual_seed(recipe.seed)  # the critic's head
    rollout = Recorded(recipe, batches, advantages, on_step)
    with _installed(advantages, rollout):
        trainer = worker.PPOTrainer(native_config(recipe, settings), run)
        require_installed(ppo.PPOTrainer.train, advantages)
        rollout.trainer = trainer
        on_step(0, rollout.trace())
        with _recording(rollout):
            trainer.train()


class Recorded:
    """Stands where RL2's engines are: brings recorded episodes, and reports each step.

    Args:
        recipe: the experiment.
        batches: one per training step.
        advantages: which the loop calls.
        on_step: see `gem_parity.recorded.OnStep`.
    """

    def __init__(
        self,
        recipe: Recipe,
        batches: Sequence[FrozenBatch],
        advantages: Advantages,
        on_step: OnStep,
    ) -> None:
        self.recipe = recipe
        self.batches = batches
        self.advantages = advantages
        self.on_step = on_step
        self.trainer: Any = None
        self.stopped_at: int | None = None
        self.sets: Sets | None = None
        self.units_by_tokens: dict[tuple[int, ...], list[Unit]] = {}
        self.minibatches: dict[str, list[list[Unit]]] = {"Actor": [], "Critic": []}
        self.rows: list[TracedRow] = []

    def __call__(self, data_list: Any, train: bool, step: int) -> Any:
        """Return RL2's tensors of the episodes of ``step`` (1-based)."""
        batch = self.batches[step - 1]
        critic = needs_critic(self.recipe)
        finals = [machine.bootstrap_state() if critic else [] for machine in batch.machines]
        if self.sets is not None:
            self.sets.clear()
        tensors, offsets = pack(batch.episodes, finals, self.sets)
        self.advantages.episodes = batch.episodes
        for number, episode in enumerate(batch.episodes):
            trained = [segment for segment in episode.segments if any(segment.loss_mask)]
            for row, segment in enumerate(trained, start=int(offsets[number])):
                self.units_by_tokens[tuple(tensors["states"][row].tolist())] = [
                    (number, turn) for turn, start, _ in segment.spans if segment.loss_mask[start]
                ]
        return tensors, offsets

    def end_updates(self, actor: Any, step: int, saves: bool) -> None:
        """Nothing is logged of a recorded run."""

    def update(self, actor: Any, step: int) -> None:
        """Report a step, where RL2 sends its weights to its engines."""
        self.on_step(step, self.trace())
        self.units_by_tokens.clear()
        self.rows = []
        for minibatches in self.minibatches.values():
            minibatches.clear()

    def note(self, role: str, tensors: dict[str, Any]) -> None:
        """Note the rows of one optimizer step."""
        rows = tensors["states"].tolist()
        units = [unit for row in rows for unit in self.units_by_tokens[tuple(row)]]
        self.minibatches[role].append(units)
        if role == "Actor":
            self.rows += [_traced(tensors, row) for row in range(len(rows))]

    def trace(self) -> StepTrace:
        """Return the weights as RL2 sends them to its engines, and what the step trained."""
        trainer = self.trainer
        trace = StepTrace(without_tied(_weights(trainer.actor)))
        trace.minibatches = list(self.minibatches["Actor"])
        trace.critic_minibatches = list(self.minibatches["Critic"])
        trace.rows = self.rows
        if trainer.critic is not None:
            critic = _weights(trainer.critic)
            trace.critic = {_critic_name(name): weight for name, weight in critic.items()}
        return trace


def _traced(tensors: dict[str, Any], row: int) -> TracedRow:
    """Return a row as RL2's loss will read it: padding removed, its shift undone."""
    length = tensors["eos_mask"][row].tolist().index(1) + 1
    fields = ("action_mask", "advantages", "old_logps")
    mask, advantages, old = (tensors[field][row, :length].double().numpy() for field in fields)
    ids = [*tensors["states"][row, :length].tolist(), int(tensors["actions"][row, length - 1])]
    on_tokens = [np.concatenate([[0.0], numbers]) for numbers in (advantages, old)]
    return TracedRow(ids, [0, *mask.astype(int).tolist()], *on_tokens)


@contextmanager
def _installed(advantages: Advantages, rollout: Recorded) -> Iterator[None]:
    """Put the adapter's classes and the recorded episodes where RL2's loop looks for its own."""
    parts = {
        "Actor": worker.Actor,
        "Critic": worker.Critic,
        "Rollout": lambda config: rollout,
        "compute_advantages": advantages,
        "save_ckpt": ppo.save_ckpt,  # the adapter's trainer replaces it
    }
    with patch.multiple(ppo, **parts):
        yield


@contextmanager
def _recording(rollout: Recorded) -> Iterator[None]:
    """Note the rows of every optimizer step, before RL2 packs them into forward passes."""
    original = sequences._tensor_dict_to_minibatches

    def packed(owner: Any, tensors: dict[str, Any], pair: bool) -> Any:
        if torch.is_grad_enabled():
            rollout.note(type(owner).__name__, tensors)
        return original(owner, tensors, pair)

    with patch.object(sequences, "_tensor_dict_to_minibatches", packed):
        yield


def _weights(owner: Any) -> Weights:
    weights = {}
    for name, tensor in checkpointing.get_state_dict(owner).items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        weights[name] = whole.detach().double().cpu().numpy().copy()
    return weights


def _critic_name(name: str) -> str:
    """Return the name that `gem_parity.recorded.StepTrace` wants."""
    return name.replace("model.", "body.", 1).replace("score.", "head.", 1)


def _with_tokenizer(model_dir: str, folder: Path) -> str:
    """Copy the model; RL2 wants a tokenizer beside it, which nothing here is tokenised with."""
    shutil.copytree(model_dir, folder)
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1}, unk_token="<pad>"))
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<end>"
    )
    tokenizer.save_pretrained(folder)
    return str(folder)
