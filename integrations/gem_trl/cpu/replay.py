"""Replay frozen episodes in TRL: its real sampler, scoring, loss, backward pass, one update.

Only generation is left out (the episodes were played before). Clipping is off, so the gradient is
the one before clipping.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast, TrainerCallback

from gem_core.episodes.data import Episode
from gem_core.parity.replay import Replay, Row
from gem_core.training.recipe import Recipe
from gem_trl.trainer import GemTrainer


class _Replayer(GemTrainer):
    """Takes episodes instead of playing them; keeps the scored batch."""

    frozen: Sequence[Episode]
    scored: dict[str, Any]

    def play(self, tasks: Sequence[Any]) -> list[Episode]:
        self.bootstrap_states = [[] for _ in tasks]
        return [self.frozen[task.index] for task in tasks]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.scored = super()._generate_and_score_completions(inputs)
        return self.scored


class _Capture(TrainerCallback):
    """Keeps the gradients of the first update and its loss."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.gradients: dict[str, np.ndarray] = {}
        self.loss = float("nan")

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Copy the gradients."""
        self.gradients = {
            name: parameter.grad.detach().double().numpy().copy()
            for name, parameter in self.trainer.model.named_parameters()
            if parameter.grad is not None
        }

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Keep the loss."""
        self.loss = logs.get("loss", self.loss)


def replay(recipe: Recipe, episodes: Sequence[Episode], model_dir: str) -> Replay:
    """Train one step of TRL on ``episodes``; see `gem_core.parity.replay.Replay`.

    Args:
        recipe: the experiment; its batch must have as many episodes.
        episodes: frozen, task ``0 .. len - 1``.
        model_dir: a causal LM; without a tokenizer beside it ids 0 and 1 pad and stop.
    """
    if torch.cuda.is_available():
        raise RuntimeError("The replay is a CPU test: hide the GPU with CUDA_VISIBLE_DEVICES=''.")
    recipe = replace(
        recipe,
        train=replace(recipe.train, steps=1),
        algorithm=replace(recipe.algorithm, max_grad_norm=0.0, epochs=1, minibatches=1),
    )
    capture = _Capture()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = _tokenizer(model_dir)
        trainer = _Replayer.from_recipe(recipe, model_dir, tokenizer, folder, [capture])
        trainer.frozen = episodes
        trainer.train()
    return Replay(_rows(trainer), capture.loss, capture.gradients)


def _rows(trainer: _Replayer) -> list[Row]:
    """Return the sequences as TRL's loss saw them, without padding and `StepBatch.row_scale`."""
    assert trainer.step_batch is not None, "a step was trained"
    scored = trainer.scored
    scale = trainer.step_batch.row_scale
    rows = []
    for number in range(len(scored["prompt_ids"])):
        prompt = scored["prompt_ids"][number][scored["prompt_mask"][number] == 1]
        kept = scored["completion_mask"][number] == 1
        completion = scored["completion_ids"][number][kept]
        mask = scored["tool_mask"][number][kept]
        advantages = scored["advantages"][number][kept] / scale
        row = Row(
            episode=number,
            token_ids=[*prompt.tolist(), *completion.tolist()],
            loss_mask=[0] * len(prompt) + mask.tolist(),
            advantages=torch.cat([torch.zeros(len(prompt)), advantages]).double().numpy(),
        )
        rows.append(row)
    return rows


def _tokenizer(model_dir: str) -> PreTrainedTokenizerFast:
    """Return the model's tokenizer, else one whose tokens are named by their ids."""
    if (Path(model_dir) / "tokenizer_config.json").exists():
        return AutoTokenizer.from_pretrained(model_dir)
    size = AutoConfig.from_pretrained(model_dir).vocab_size
    words = {"<pad>": 0, "<stop>": 1, **{f"<{i}>": i for i in range(2, size)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<stop>", padding_side="left"
    )
