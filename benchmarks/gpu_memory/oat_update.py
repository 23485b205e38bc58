"""Oat's update (`PPOLearner.learning_step`): its loss, strategy and DeepSpeed's ZeRO engine.

Not Oat's: the model has no data; its attention is torch's in place of flash-attn's; DeepSpeed's
fused Adam is torch's, which makes no tensor in a step either. The row has no padding and no
log-probabilities of the actors, as to find their places needs data.
"""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

import torch
from cases import Case, attend_without_mask, join_group, model_folder, result, tensors_without_data
from live import LiveBytes
from transformers import AutoConfig, AutoModelForCausalLM
from zero import fuse_adam, label_states, without_data

from gem_oat.cpu.in_process import InMemoryLearner, make

# isort: split
import oat.model
from oat.algorithms.ppo import PPOLearner

from gem_oat.config import arguments

PASSES = 2
"""Forward passes of an update; the adapter makes more, and the others are alike."""


class Learner(InMemoryLearner, PPOLearner):
    """Oat's learner, for which no prompts are read."""

    def prepare_data(self, strategy: Any, tokenizer: Any) -> None:
        """Say that there is one prompt for each GPU."""
        self.prompts_dataset = [("", "", "")] * strategy.world_size


def measure(case: Case) -> dict[str, Any]:
    """Return the peak of the second update, of `PASSES` forward passes each."""
    torch.cuda.device_count = lambda: case.world
    args = arguments(case.recipe())
    args.pretrain = str(model_folder(case.model))
    args.num_ppo_epochs = 1
    learner = make(args, Learner, alone=True)
    os.environ["WORLD_SIZE"] = str(case.world)
    join_group(case.world)
    attend_without_mask()
    with (
        patch.object(oat.model.AutoModelForCausalLM, "from_pretrained", _model),
        patch.object(torch, "where", _where(torch.where)),
        tensors_without_data(),
        LiveBytes() as live,
    ):
        learner._init(args, [])
        engine = learner.model.model
        fuse_adam(engine)
        live.label("weights", engine.module.parameters())
        _accumulate(learner, case.world)
        norm = learner.strategy.get_gradient_norm
        learner.strategy.get_gradient_norm = lambda model: float(norm(model))
        learner.model.train()
        learner.learning_step(_rows(case.tokens))
        label_states(engine, live)
        live.reset()
        learner.learning_step(_rows(case.tokens))
        return result(live)


def _model(path: str, **keywords: Any) -> Any:
    """Return the model of a folder, in place of ``from_pretrained``."""
    return without_data(
        AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(path),
            torch_dtype=keywords["torch_dtype"],
            attn_implementation="sdpa",
        )
    )


def _accumulate(learner: Learner, world: int) -> None:
    """As `GemLearner.process_feedback_data` does for rows of one pass each."""
    engine = learner.model.model
    learner.strategy.grad_acc_step = PASSES
    engine.set_train_batch_size(world * PASSES)
    engine.optimizer.gradient_accumulation_steps = PASSES
    engine.micro_steps = 0


def _where(where: Any) -> Any:
    """Return ``torch.where``, which with a mask alone finds no place: Oat asks it for padding."""

    def found(condition: torch.Tensor, *values: Any) -> Any:
        return where(condition, *values) if values else (torch.zeros(0, dtype=torch.long),)

    return found


def _rows(tokens: int) -> dict[str, Any]:
    """What Oat's learner gets of its rows."""
    return {
        "input_ids": torch.zeros(PASSES, tokens, dtype=torch.long),
        "attention_mask": torch.ones(PASSES, tokens, dtype=torch.long),
        "rewards": [[0.0]] * PASSES,
        "prompt_ids_lens": [1] * PASSES,
        "action_logprobs": [[]] * PASSES,
        "loss_masks": [1.0] * PASSES,
    }
